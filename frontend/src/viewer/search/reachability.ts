/** What can be reached in a graph, in linear time. */

/** Returns what is reached from a position, itself left out unless a cycle leads back to it. */
export function reachable(neighbours: readonly (readonly number[])[], start: number): Set<number> {
  const found = new Set<number>();
  const pending = [start];
  while (pending.length > 0) {
    for (const position of neighbours[pending.pop()!]!) {
      if (found.has(position)) continue;
      found.add(position);
      pending.push(position);
    }
  }
  return found;
}
