"use strict";
(() => {
  const rows = [...document.querySelectorAll("details.row")];
  const groups = [...document.querySelectorAll(".group")];
  const tools = document.getElementById("tools");
  const search = document.getElementById("search");
  const shown = document.getElementById("shown");
  const boxes = [...document.querySelectorAll("#outcomes input")];
  const texts = new Map();

  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const outcomes = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let count = 0;
    for (const row of rows) {
      const fits = outcomes.has(row.dataset.outcome) && words.every((word) => textOf(row).includes(word));
      row.hidden = !fits;
      if (fits) count += 1;
    }
    for (const group of groups) group.hidden = !group.querySelector("details.row:not([hidden])");
    shown.textContent = `${count} of ${rows.length} shown`;
  };
  const openAll = (open) => {
    for (const row of rows) if (!row.hidden) row.open = open;
  };
  // A link to a requirement shows it, even if a filter hides it.
  const follow = () => {
    const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!row || !row.matches("details.row")) return;
    if (row.hidden) {
      search.value = "";
      for (const box of boxes) box.checked = true;
      apply();
    }
    row.open = true;
    row.scrollIntoView();
    row.querySelector("summary").focus({preventScroll: true});
  };

  if (tools) {
    search.addEventListener("input", apply);
    for (const box of boxes) box.addEventListener("change", apply);
    document.getElementById("open-all").addEventListener("click", () => openAll(true));
    document.getElementById("close-all").addEventListener("click", () => openAll(false));
    tools.hidden = false;
    apply();
    window.addEventListener("hashchange", follow);
    if (location.hash !== "") follow();
  }
})();
