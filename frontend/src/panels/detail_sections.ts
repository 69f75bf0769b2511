/** The parts of the details that only tell something: parameters, contents, candidates, source. */

import { h, icon } from "../base/dom";
import { counted, grouped } from "../base/format";
import type { Details } from "../base/protocol";
import type { Pass, SourceFrame } from "../base/wire";
import { whyNotButton } from "./passes/pass_summary";

/** Returns the pass of a signature, and its number. */
export type PassOf = (signature: string) => { pass: Pass; number: number } | null;

export function parameters(details: Details): HTMLElement | null {
  if (!details.parameters?.length) return null;
  return section("Parameters", [
    h("ul.fxi-links", [
      details.parameters.map(({ name, shape, dtype, elements, kind }) =>
        h("li", { title: `${kind}, ${dtype}, ${counted(elements, "element")}` }, [
          h("code", name),
          h("span.fxi-muted", `${shape}${kind === "parameter" ? "" : ` ${kind}`}`),
        ]),
      ),
    ]),
  ]);
}

export function contents(details: Details): HTMLElement | null {
  if (!details.contents?.length) return null;
  const largest = Math.max(...details.contents.map(({ count }) => count));
  return section("Operations", [
    h("ul.fxi-bars", [
      details.contents.map(({ name, count }) =>
        h("li", { style: `--share: ${count / largest}` }, [
          h("code.fxi-cut", { title: name }, name),
          h("span.fxi-muted.fxi-cut", grouped(count)),
        ]),
      ),
    ]),
  ]);
}

export function candidates(
  details: Details,
  passOf: PassOf,
  whyNot: (pass: Pass, node: string) => void,
): HTMLElement | null {
  if (!details.candidates?.length) return null;
  return section("Candidates", [
    h("ul.fxi-candidates", [
      details.candidates.map(({ signature, matched, reason }) => {
        const found = passOf(signature);
        return h("li", [
          icon(matched ? "check" : "close"),
          h(
            "span",
            // A pass that is not on offer goes by its name.
            h("b", found?.pass.name ?? signature),
            ": ",
            reason || (matched ? "matches" : "refused"),
          ),
          found && !matched && whyNotButton(details.name ?? "", () => whyNot(found.pass, details.name ?? "")),
        ]);
      }),
    ]),
  ]);
}

export function source(frames: SourceFrame[]): HTMLElement | null {
  const [innermost, ...outer] = frames;
  if (!innermost) return null;
  return section("Source", [
    place(innermost),
    innermost.excerpt.length > 0
      ? h("pre.fxi-code", { tabindex: 0, role: "group", "aria-label": "Lines of source" }, [
          innermost.excerpt.map(({ line, text }) =>
            h(
              "span",
              { class: line === innermost.line ? "fxi-line fxi-current" : "fxi-line", "data-line": line },
              text || " ",
            ),
          ),
        ])
      : innermost.code &&
        h("pre.fxi-code", h("span.fxi-line.fxi-current", { "data-line": innermost.line }, innermost.code)),
    outer.length > 0 &&
      h("details.fxi-callers", [
        h("summary", icon("chevron"), `Called from ${counted(outer.length, "line")}`),
        outer.map((frame) => h("div.fxi-caller", place(frame), frame.code && h("code", frame.code))),
      ]),
  ]);
}

function place({ file, line, function: name }: SourceFrame): HTMLElement {
  const short = file.split(/[\\/]/).slice(-2).join("/");
  return h("div.fxi-cut", { title: `${file}:${line}` }, [
    h("code", `${short}:${line}`),
    h("span.fxi-muted", ` in ${name}`),
  ]);
}

export function section(title: string, ...children: Parameters<typeof h>[2][]): HTMLElement {
  return h("div.fxi-section", h("h3", title), ...children);
}
