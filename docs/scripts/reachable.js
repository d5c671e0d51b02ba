// Wide tables scroll, so keys must reach them; the theme sees to blocks of code.

addEventListener("load", () => {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
});
