/** What a query can ask for, in words. */

export interface Field {
  field: string;
  example: string;
  words: string;
}

export const FIELDS: readonly Field[] = [
  { field: "name", example: "name:attention", words: "part of the name; name:/layer_[0-3]_/ a pattern" },
  { field: "op", example: "op:call_module", words: "kind of node" },
  { field: "target", example: "target:linear", words: "called function or module" },
  { field: "module", example: "module:encoder.layer.0", words: "module path" },
  { field: "class", example: "class:Linear", words: "class of an enclosing or called module" },
  { field: "arg", example: "arg:attn_mask", words: "given an argument of this name" },
  { field: "shape", example: "shape:2x12", words: "part of the result's shape; (2, 12) for all of it" },
  { field: "dtype", example: "dtype:float32", words: "of the result; f32 for short" },
  { field: "params", example: "params:>1e6", words: "elements of the parameters that it holds" },
  { field: "elements", example: "elements:>=4096", words: "of the largest result" },
  { field: "error", example: "error:>1e-3", words: "output error, once the graph is coloured by it" },
  { field: "source", example: "source:model.py:120", words: "file, line, or text of the line" },
  { field: "by", example: "by:merge-linears", words: "changed by this pass" },
  { field: "inputs", example: "inputs:output", words: "read by a node" },
  { field: "users", example: "users:input_ids", words: "that read a node" },
  { field: "upstream", example: "upstream:output", words: "everything that a node is computed from" },
  { field: "downstream", example: "downstream:input_ids", words: "everything computed from a node" },
  { field: "path", example: "path:input_ids..output", words: "every node between two nodes" },
];

/** Returns the query of a field for a name, in quotes where it would be read as several. */
export function queryFor(field: string, name: string): string {
  return /^[^\s"()[\]]+$/.test(name) ? `${field}:${name}` : `${field}:"${name}"`;
}
