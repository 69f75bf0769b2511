/** Boxes with the chips that a view puts on them; the twin of `fxlab.drawing.rendering.box`. */

import type { Box } from "../../base/protocol";
import type { Data } from "../graphs/data";
import { Group, type Leaf } from "../graphs/hierarchy";
import type { Chip, View } from "../graphs/view";
import type { Look, Word } from "../../base/wire";

export interface PlacedChip {
  id: string;
  box: Box;
  word: Word;
  /** Relative to the top left corner of the box that reads it. */
  x: number;
  y: number;
  width: number;
}

export interface PlacedBox {
  id: string;
  box: Box;
  look: Look;
  width: number;
  height: number;
  /** Height taken by chips above the title. */
  textTop: number;
  chips: PlacedChip[];
}

export function placeBoxes(view: View, data: Pick<Data, "look">): Map<string, PlacedBox> {
  const placed = new Map<string, PlacedBox>();
  const lookOf = (item: Group | Leaf): Look =>
    data.look(item instanceof Group ? item[view.isCluster(item) ? "opened" : "closed"] : item.look)!;
  for (const item of [...view.clusters, ...view.boxes]) {
    const isGroup = item instanceof Group;
    const look = lookOf(item);
    const box: Box = {
      kind: look.kind,
      label: look.label,
      path: isGroup ? item.path : item.parent.path,
      // An input or output with what is drawn with it is known by its own name.
      node: isGroup ? (view.isCluster(item) ? null : (item.host?.name ?? null)) : item.name,
      count: isGroup ? item.data.count : item.facts.length,
      details: look.details,
      openable: look.openable,
      changed: look.changed,
      marks: look.marks,
      refersTo: "",
      belongsTo: "",
    };
    const bare: PlacedBox = {
      id: item.id,
      box,
      look,
      width: look.width,
      height: look.height,
      textTop: 0,
      chips: [],
    };
    placed.set(item.id, bare);
    if (isGroup && view.isCluster(item))
      for (const id of view.pieces(item).values()) placed.set(id, { ...bare, id });
    const words = (view.chips.get(item.id) ?? []).map((chip) => wordsOf(chip, lookOf(chip.box), view));
    for (const areBelow of [false, true]) {
      const chips = words.filter(({ chip }) => (chip.end === "target") === areBelow);
      if (chips.length > 0) placed.set(item.id, withChips(placed.get(item.id)!, chips, areBelow, view));
    }
  }
  return placed;
}

interface Worded {
  chip: Chip;
  word: Word;
  width: number;
}

/** The words of a chip: of a reference, the title of the box at the other end. */
function wordsOf(chip: Chip, { title }: Look, { hierarchy, metrics: m }: View): Worded {
  const [text, width] = title;
  const scaled = (width * m.chipSize) / m.titleSize;
  const words: Record<string, Word> = {
    source: [text, scaled, false],
    target: [`→ ${text}`, scaled + m.arrow, false],
  };
  const word = words[chip.end ?? ""] ?? hierarchy.data.chips[chip.source.position]!;
  return { chip, word, width: word[1] + 2 * m.chipPadding };
}

function withChips(bare: PlacedBox, chips: Worded[], areBelow: boolean, view: View): PlacedBox {
  const m = view.metrics;
  const shown = chips.slice(0, m.mostChips);
  if (chips.length > m.mostChips) {
    const rest = String(chips.length - m.mostChips + 1);
    const width = m.more[0] + rest.length * m.more[1];
    shown[shown.length - 1] = {
      ...shown.at(-1)!,
      word: [`and ${rest} more`, width, true] as Word,
      width: width + 2 * m.chipPadding,
    };
  }
  const rows: (typeof shown)[] = [];
  for (let start = 0; start < shown.length; start += m.chipsPerRow)
    rows.push(shown.slice(start, start + m.chipsPerRow));
  const totals = rows.map((row) => row.reduce((sum, { width }) => sum + width, m.chipGap * (row.length - 1)));
  const widest = Math.max(...totals);
  const sign = bare.look.openable ? m.toggleRoom : 0;
  const width = Math.max(bare.width, Math.ceil(widest + sign + 2 * m.paddingX));
  const height = rows.length * (m.chipHeight + m.chipRowsGap) + 1;
  const placed = rows.flatMap((row, number) => {
    let x = (widest - totals[number]!) / 2 + (width - widest) / 2;
    return row.map(({ chip, word, width }) => {
      const left = x;
      x += width + m.chipGap;
      return {
        id: `chip-${chip.end ? chip.box.id : chip.source.id.slice(2)}-${bare.id}`,
        box: chipBox(chip, view, bare.id),
        word,
        x: left,
        y: number * (m.chipHeight + m.chipRowsGap) + (areBelow ? bare.height - m.paddingY : m.paddingY) - 1,
        width,
      };
    });
  });
  const wider = (width - bare.width) / 2;
  return {
    ...bare,
    width,
    height: bare.height + height,
    textTop: areBelow ? bare.textTop : height,
    chips: [...bare.chips.map((chip) => ({ ...chip, x: chip.x + wider })), ...placed],
  };
}

function chipBox({ source, box, end }: Chip, view: View, reader: string): Box {
  const node = end === "target" ? view.firstIn(box) : source;
  return {
    kind: "chip",
    label: node.name,
    path: node.parent.path,
    node: node.name,
    count: 1,
    details: [],
    openable: false,
    changed: 0,
    marks: [],
    refersTo: box.id,
    belongsTo: reader,
  };
}
