/** Boxes with the chips that a view puts on them; the twin of `fxlab.drawing.rendering.box`. */

import type { Box } from "../../base/protocol";
import type { Data } from "../graphs/data";
import { Group } from "../graphs/hierarchy";
import type { Chip, View } from "../graphs/view";
import type { Look, Metrics, Word } from "../../base/wire";

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

export function placeBoxes(view: View, data: Pick<Data, "look">, metrics: Metrics): Map<string, PlacedBox> {
  const placed = new Map<string, PlacedBox>();
  for (const item of [...view.clusters, ...view.boxes]) {
    const isGroup = item instanceof Group;
    const look = data.look(isGroup ? item[view.isCluster(item) ? "opened" : "closed"] : item.look)!;
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
    const chips = view.chips.get(item.id);
    placed.set(item.id, chips ? withChips(bare, chips, view, metrics) : bare);
  }
  return placed;
}

function withChips(bare: PlacedBox, chips: Chip[], view: View, m: Metrics): PlacedBox {
  const shown = chips.slice(0, m.mostChips).map((chip) => {
    const word = view.hierarchy.data.chips[chip.source.position]!;
    return { chip, word, width: word[1] + 2 * m.chipPadding };
  });
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
        id: `chip-${chip.source.id.slice(2)}-${bare.id}`,
        box: chipBox(chip, bare.id),
        word,
        x: left,
        y: number * (m.chipHeight + m.chipRowsGap) + m.paddingY - 1,
        width,
      };
    });
  });
  return { ...bare, width, height: bare.height + height, textTop: height, chips: placed };
}

function chipBox({ source, box }: Chip, reader: string): Box {
  return {
    kind: "chip",
    label: source.name,
    path: source.parent.path,
    node: source.name,
    count: 1,
    details: [],
    openable: false,
    changed: 0,
    marks: [],
    refersTo: box.id,
    belongsTo: reader,
  };
}
