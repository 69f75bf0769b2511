/** Looks of lines: bytes that a step keeps, and on request dtypes or bytes; the twin of `fxlab.drawing.rendering.paint`. */

import { kindsOf, withUnit } from "../../base/format";
import type { LineKinds } from "../../base/protocol";
import type { Leaf } from "../graphs/hierarchy";
import type { View, VisibleEdge } from "../graphs/view";
import type { Arrangement, Paints } from "../../base/wire";

/** On paper. */
const SAVED = "#7aa7c7";
const [THINNEST, THICKEST] = [1.2, 5];

/** The look of a line where it is not that of most. */
export interface LineLook {
  /** The number of the kind of dtype. */
  kind?: number;
  /** On paper. */
  colour?: string;
  thickness?: number;
  /** The bytes that a step keeps along it for its backward pass. */
  saved?: number;
}

export class LineStyles {
  private readonly most: number;
  private readonly kinds: string[];

  /** `views` are compared with one another. */
  constructor(
    views: View[],
    private readonly by: Arrangement["lines"],
    private readonly paints: Paints,
  ) {
    const edges = views.flatMap((view) => view.edges.map((edge) => [view, edge] as const));
    const drawnByBytes = edges.filter(([view, edge]) => by === "bytes" || view.isSaved(edge));
    this.most = Math.max(0, ...drawnByBytes.map(([, edge]) => bytesOf(edge)));
    const dtypes = by === "dtype" ? edges.map(([, edge]) => dtypesOf(edge)) : [];
    this.kinds = kindsOf(dtypes.filter(Boolean));
  }

  look(view: View, edge: VisibleEdge): LineLook {
    const isSaved = view.isSaved(edge);
    const look: LineLook = isSaved ? { colour: SAVED } : {};
    const kind = this.by === "dtype" ? this.kinds.indexOf(dtypesOf(edge)) : -1;
    if (kind >= 0) {
      look.kind = Math.min(kind, this.paints.kinds.length - 1);
      look.colour = this.paints.kinds[look.kind]![1];
    }
    if (!isSaved && this.by !== "bytes") return look;
    const bytes = bytesOf(edge);
    look.thickness = THINNEST + (THICKEST - THINNEST) * Math.sqrt(bytes / (this.most || 1));
    return isSaved ? { ...look, saved: bytes } : look;
  }

  /** What the looks mean; null where lines are alike. */
  get legend(): LineKinds | null {
    if (this.by === "bytes") return { title: `Lines: up to ${withUnit(this.most, "B")}`, kinds: [] };
    return this.by === "dtype" ? { title: "Lines: dtype", kinds: this.kinds } : null;
  }
}

function dtypesOf({ leaves }: VisibleEdge): string {
  const dtypes = leaves.flatMap(({ facts }) => (facts[0]?.values ?? []).map(({ dtype }) => dtype));
  const known = dtypes.filter((dtype) => dtype.startsWith("torch."));
  return [...new Set(known.map((dtype) => dtype.slice("torch.".length)))].sort().join(", ");
}

/** Returns the bytes of the values of known sizes that flow. */
function bytesOf({ leaves }: VisibleEdge): number {
  return sum(leaves.map(bytesOfLeaf));
}

function bytesOfLeaf({ facts }: Leaf): number {
  return sum(
    (facts[0]?.values ?? []).map(({ shape, dtype }) => {
      const bits = dtype === "torch.bool" ? 8 : Number(dtype.match(/\d+/)?.[0] ?? 0);
      if (!/^\([\d, ]*\)$/.test(shape)) return 0;
      return ((shape.match(/\d+/g) ?? []).map(Number).reduce((a, b) => a * b, 1) * bits) / 8;
    }),
  );
}

function sum(numbers: number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}
