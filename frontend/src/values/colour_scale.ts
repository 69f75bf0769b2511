/** The colours of numbers: away from zero in two directions, or from the least to the largest. */

/** The colours of a theme, as `#rrggbb`. */
export interface Colours {
  low: string;
  zero: string;
  high: string;
  nonFinite: string;
}

export interface Scale {
  /** Of the finite numbers, or as far below zero as above; NaN if there are none. */
  low: number;
  high: number;
  /** Whether there are numbers on both sides of zero. */
  isSigned: boolean;
  hasNonFinite: boolean;
}

type Pixel = [red: number, green: number, blue: number, opacity: number];

export function scaleOf(cells: Float32Array | Float64Array): Scale {
  let [low, high, hasNonFinite] = [Infinity, -Infinity, false];
  for (const cell of cells)
    if (Number.isFinite(cell)) [low, high] = [Math.min(low, cell), Math.max(high, cell)];
    else hasNonFinite = true;
  if (low > high) return { low: NaN, high: NaN, isSigned: false, hasNonFinite };
  const isSigned = low < 0 && high > 0;
  const largest = Math.max(-low, high);
  return isSigned
    ? { low: -largest, high: largest, isSigned, hasNonFinite }
    : { low, high, isSigned, hasNonFinite };
}

export function colourOf(cell: number, { low, high, isSigned }: Scale, colours: Colours): Pixel {
  if (!Number.isFinite(cell)) return pixel(colours.nonFinite);
  if (isSigned) return between(colours.zero, cell < 0 ? colours.low : colours.high, Math.abs(cell) / high);
  const isNegative = low < 0;
  // The strong colour is farthest from zero; where all are alike it is that of zero, or of what is none.
  if (low === high) return between(colours.zero, isNegative ? colours.low : colours.high, low === 0 ? 0 : 1);
  const share = cell / (high - low) - low / (high - low);
  return isNegative ? between(colours.low, colours.zero, share) : between(colours.zero, colours.high, share);
}

function between(from: string, to: string, share: number): Pixel {
  const [a, b] = [pixel(from), pixel(to)];
  return a.map((channel, i) => Math.round(channel + (b[i]! - channel) * share)) as Pixel;
}

const PIXELS = new Map<string, Pixel>();

function pixel(colour: string): Pixel {
  const known = PIXELS.get(colour);
  if (known) return known;
  const channel = (at: number): number => parseInt(colour.slice(at, at + 2), 16) || 0;
  const made: Pixel = [channel(1), channel(3), channel(5), 255];
  PIXELS.set(colour, made);
  return made;
}
