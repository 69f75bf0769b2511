/** Moving a card of a list with the pointer. */

/** How close to an end of the list the pointer scrolls it, and how far. */
const GAP = 10;
const ENDS = ["pointerup", "pointercancel", "lostpointercapture"];

/**
 * Lets a card of a list be dragged until the pointer is up; a line says where it would go. `scroller` is what the
 * list scrolls in.
 */
export function dragCard(
  down: PointerEvent,
  list: HTMLElement,
  scroller: HTMLElement,
  number: number,
  moveTo: (place: number) => void,
): void {
  if (down.button !== 0) return;
  const grip = down.currentTarget as HTMLElement;
  const cards = [...list.children] as HTMLElement[];
  let place = number;
  const mark = (): void =>
    cards.forEach((card, i) => {
      card.classList.toggle("fxi-drop-above", i === place && place < number);
      card.classList.toggle("fxi-drop-below", i === place && place > number);
      card.classList.toggle("fxi-dragged", i === number && place !== number);
    });
  const move = (event: PointerEvent): void => {
    const middles = cards
      .map((card) => card.getBoundingClientRect())
      .map(({ top, height }) => top + height / 2);
    const above = middles.filter((middle, i) => i !== number && middle < event.clientY).length;
    const { top, bottom } = scroller.getBoundingClientRect();
    scroller.scrollTop += event.clientY < top + GAP ? -GAP : event.clientY > bottom - GAP ? GAP : 0;
    place = above;
    mark();
  };
  const end = (event: Event): void => {
    grip.removeEventListener("pointermove", move);
    for (const name of ENDS) grip.removeEventListener(name, end);
    const to = event.type === "pointerup" ? place : number;
    place = number;
    mark();
    moveTo(to);
  };
  grip.setPointerCapture(down.pointerId);
  grip.addEventListener("pointermove", move);
  for (const name of ENDS) grip.addEventListener(name, end);
}
