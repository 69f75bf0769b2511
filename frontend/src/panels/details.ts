/** What is known of the selected node or group, or of the model while nothing is selected. */

import { breakable, fill, focusedIn, h, icon, iconButton, nodeLink, textButton } from "../base/dom";
import { counted, grouped, numbered } from "../base/format";
import { elidedList, shortNames } from "../base/names";
import { markColour } from "../graph/live_picture";
import type { Details, Link, ShownValues } from "../base/protocol";
import { ValueSection, type ValueActions } from "../values/value_section";
import { whyNotButton } from "./passes/pass_summary";
import type { Pass, Rewrite, SourceFrame, Token } from "../base/wire";

export interface DetailActions {
  jump(node: string): void;
  selectGroup(path: string): void;
  open(path: string): void;
  locate(box: string): void;
  /** Lights up all that a node is computed from, or that is computed from it. */
  lightUp(field: "upstream" | "downstream", node: string): void;
  clear(): void;
  /** Takes one rewrite of a pass back, or makes it again. */
  limit(signature: string, node: string, again: boolean): void;
  /** Shows why a pass does not apply at a node. */
  whyNot(pass: Pass, node: string): void;
  values: Omit<ValueActions, "jump">;
}

/** Returns the pass of a signature, and its number. */
export type PassOf = (signature: string) => { pass: Pass; number: number } | null;

const ENDS = { first: 8, last: 3 };

export class DetailsPanel {
  private readonly body = h("div.fxi-panel-body.fxi-grow.fxi-scroll");
  readonly element = h(
    "section.fxi-panel.fxi-grow.fxi-column.fxi-details",
    { "aria-label": "Details", tabindex: -1 },
    [this.body],
  );
  /** Whether a rewrite was taken back or applied again here: then the way back gets the focus. */
  private wasPressed = false;
  private readonly values: ValueSection;
  /** What is shown, by its name. */
  private shown = "";

  constructor(
    private readonly actions: DetailActions,
    private readonly passOf: PassOf,
  ) {
    this.values = new ValueSection({ ...actions.values, jump: actions.jump });
  }

  show(details: Details): void {
    // JupyterLab takes the focus to itself when the element that has it goes.
    const focused = focusedIn(this.body);
    if (focused) {
      this.wasPressed ||= focused.closest(".fxi-rewrite") !== null;
      this.element.focus({ preventScroll: true });
    }
    const { kind, name, path, pane = 0 } = details;
    const shown = JSON.stringify([kind, name ?? path, pane]);
    // Who reads something goes on reading it when more is known.
    const scrolled = shown === this.shown ? this.body.scrollTop : 0;
    this.shown = shown;
    fill(this.body, [
      this.head(details),
      this.marks(details.marks),
      this.became(details.became),
      this.rewrites(details),
      h("dl.fxi-fields", [
        details.fields.map(({ label, value, code }) => [
          h("dt", label),
          h("dd", code ? h("code", breakable(value)) : value),
        ]),
        (details.values ?? []).map(({ shape, dtype }, i, all) => [
          h("dt", all.length > 1 ? `Result ${i}` : "Result"),
          h("dd", h("code", shape || "—"), " ", h("code.fxi-muted", dtype)),
        ]),
      ]),
      details.kind === "node" && this.values.element,
      this.arguments(details),
      this.links(
        details.kind === "node" ? "Inputs" : details.kind === "group" ? "Group inputs" : "Model inputs",
        details.inputs,
        this.onward(details, "upstream"),
      ),
      this.links(
        details.kind === "group" ? "Group outputs" : "Users",
        details.users,
        this.onward(details, "downstream"),
      ),
      parameters(details),
      contents(details),
      candidates(details, this.passOf, this.actions.whyNot),
      source(details.frames ?? []),
      details.isPartial === true &&
        h("p.fxi-partial.fxi-muted", "The kernel knows more, and has not answered."),
      details.trace &&
        details.trace.length > 0 &&
        section("Trace", [
          h("pre.fxi-trace", { tabindex: 0, role: "group", "aria-label": "Trace" }, details.trace.join("\n")),
        ]),
    ]);
    this.body.scrollTop = scrolled;
    if (focused && this.values.element.contains(focused)) focused.focus({ preventScroll: true });
    const next = this.body.querySelector<HTMLElement>(".fxi-rewrite button");
    if (!this.wasPressed || !next) return;
    this.wasPressed = false;
    if (focusedIn(this.element)) next.focus();
  }

  /** Shows the values of the node, as far as somebody has asked for them. */
  showValues(values: ShownValues): void {
    this.values.show(values);
  }

  private head(details: Details): HTMLElement {
    return h("div.fxi-details-head", [
      details.crumbs.length > 0 &&
        h("nav.fxi-crumbs.fxi-wrap", { "aria-label": "Enclosing groups" }, [
          details.crumbs.map(({ label, path }) =>
            h("button.fxi-link", { title: path, onclick: () => this.actions.selectGroup(path) }, label),
          ),
        ]),
      h("div.fxi-title-row", [
        h("h2.fxi-grow", { title: details.title }, breakable(details.title)),
        details.box
          ? iconButton("target", "Show in the graph", () => this.actions.locate(details.box!))
          : null,
        details.kind !== "model"
          ? iconButton("close", "Back to the model", () => this.actions.clear(), "Esc")
          : null,
      ]),
      h(
        "span",
        {
          class: `fxi-kind fx-${details.kind === "node" ? details.subtitle.replace(/\W/g, "") : details.kind}`,
        },
        details.subtitle,
      ),
    ]);
  }

  private marks(signatures: string[]): HTMLElement | null {
    if (signatures.length === 0) return null;
    return h("div.fxi-changed-by.fxi-row.fxi-wrap", [
      "Changed by",
      signatures.map((signature) => {
        const found = this.passOf(signature);
        const words = found ? numbered(found.pass.stage, found.pass.name) : signature.slice(0, 12);
        return h("span.fxi-chip", { style: found && `--mark: ${markColour(found.number)}` }, words);
      }),
    ]);
  }

  private became(changes: string[] = []): HTMLElement | null {
    if (changes.length === 0) return null;
    const chips = changes.map((change) => h("span.fxi-chip", change));
    return h("div.fxi-changed-by.fxi-row.fxi-wrap", "In the comparison", chips);
  }

  private rewrites(details: Details): HTMLElement | null {
    const { rewrites = [], name = "" } = details;
    if (rewrites.length === 0) return null;
    return h("div.fxi-rewrites.fxi-column", [
      rewrites.map((rewrite) => this.rewrite(rewrite, name, rewrites.length > 1)),
    ]);
  }

  private rewrite(
    { signature, count, isExcluded }: Rewrite,
    node: string,
    isOneOfSeveral: boolean,
  ): HTMLElement {
    const found = this.passOf(signature);
    const words = isExcluded
      ? "Include this candidate"
      : count > 1
        ? `Exclude these ${count} rewrites`
        : "Exclude this rewrite";
    const press = textButton([icon(isExcluded ? "redo" : "undo"), words], "", () => {
      if (press.closest("[aria-busy=true]")) return;
      this.wasPressed = true;
      this.actions.limit(signature, node, isExcluded);
    });
    const name = found?.pass.name ?? signature.slice(0, 12);
    const label = isExcluded ? `Excluded from ${name}` : isOneOfSeveral ? name : "";
    return h("div.fxi-rewrite.fxi-row.fxi-wrap", label && h("span", label), press);
  }

  private arguments(details: Details): HTMLElement | null {
    if (!details.arguments?.length) return null;
    return section("Arguments", [
      h("dl.fxi-fields.fxi-args", [
        details.arguments.map(({ label, tokens }) => [
          h("dt", label),
          h("dd", [h("code", [tokens.map((token) => this.token(token))])]),
        ]),
      ]),
    ]);
  }

  private token(token: Token): Node | string {
    return "node" in token ? this.link({ name: token.node, text: "" }) : token.text;
  }

  private link({ name }: Link, shown = name): HTMLElement {
    return nodeLink(name, () => this.actions.jump(name), shown);
  }

  /** Returns what lights up all that lies before a node, or behind it. */
  private onward({ kind, name }: Details, field: "upstream" | "downstream"): HTMLElement | null {
    if (kind !== "node" || !name) return null;
    const title = `Highlight everything ${field} of ${name}`;
    return h("button.fxi-link.fxi-onward", { title, onclick: () => this.actions.lightUp(field, name) }, [
      `all ${field}`,
    ]);
  }

  private links(title: string, links: Link[], onward: HTMLElement | null): HTMLElement | null {
    if (links.length === 0) return null;
    const short = shortNames(links.map(({ name }) => name));
    const rows = links.map((link, i) =>
      h("li", this.link(link, short[i]), link.text && h("span.fxi-muted", link.text)),
    );
    const head = h("div.fxi-row", h("h3.fxi-grow.fxi-small", title), onward);
    return h("div.fxi-section", head, elidedList(rows, ENDS));
  }
}

function parameters(details: Details): HTMLElement | null {
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

function contents(details: Details): HTMLElement | null {
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

function candidates(
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

function source(frames: SourceFrame[]): HTMLElement | null {
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
      h("details.fxi-reasons", [
        h("summary", icon("chevron"), `Called from ${counted(outer.length, "line")}`),
        outer.map((frame) => h("div.fxi-reason", place(frame), frame.code && h("code", frame.code))),
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

function section(title: string, ...children: Parameters<typeof h>[2][]): HTMLElement {
  return h("div.fxi-section", h("h3", title), ...children);
}
