// What the theme leaves out for those who use a keyboard or hear the page: levels of headings, names of side
// panels, parts that scroll sideways, and corners of tables, which are no headings.
document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
  for (const [panel, name] of [[".sidebar-drawer", "Site"], [".toc-drawer", "On this page"]])
    document.querySelector(panel)?.setAttribute("aria-label", name);
  for (const part of document.querySelectorAll(".cell_output .output, .table-wrapper, pre"))
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  for (const corner of document.querySelectorAll("table.dataframe th:empty"))
    corner.replaceWith(document.createElement("td"));
});
