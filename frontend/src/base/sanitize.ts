/** From the text of a picture to elements: only shapes and words, nothing that runs or loads. */

const ELEMENTS = new Set("svg g path polygon polyline rect circle ellipse line text tspan".split(" "));
const ATTRIBUTES = new Set(
  (
    "class id d points x y x1 y1 x2 y2 cx cy r rx ry width height viewBox transform fill stroke stroke-width " +
    "stroke-dasharray stroke-linejoin stroke-linecap opacity fill-opacity stroke-opacity font-size font-family " +
    "font-weight font-style paint-order text-anchor textLength lengthAdjust aria-label role data-source data-target"
  ).split(" "),
);
const LOADS = /url\s*\(|javascript:|data:|@import|expression\s*\(/i;

/** Parses an SVG; raises an Error in words if it is none. */
export function parseSvg(text: string): SVGSVGElement {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
  const root = parsed.documentElement;
  if (root.localName !== "svg" || parsed.getElementsByTagName("parsererror").length > 0) {
    throw new Error("The kernel sent a picture that is no SVG.");
  }
  clean(root);
  return document.importNode(root, true) as unknown as SVGSVGElement;
}

function clean(element: Element): void {
  for (const attribute of [...element.attributes]) {
    const isNamespace = attribute.name === "xmlns";
    if (!isNamespace && (!ATTRIBUTES.has(attribute.name) || LOADS.test(attribute.value))) {
      element.removeAttributeNode(attribute);
    }
  }
  for (const child of [...element.childNodes]) {
    if (child.nodeType === Node.TEXT_NODE) continue;
    if (child.nodeType === Node.ELEMENT_NODE && isAllowed(child as Element)) clean(child as Element);
    else child.remove();
  }
}

function isAllowed(element: Element): boolean {
  return ELEMENTS.has(element.localName) && element.namespaceURI === "http://www.w3.org/2000/svg";
}
