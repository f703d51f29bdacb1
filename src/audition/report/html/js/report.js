/* Puts charts into the page: reads their data, draws them at the width they have, and again when that changes. */
"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const specs = JSON.parse(document.getElementById("charts").textContent);

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  /* Plot wraps a chart with a legend into a figure; what is drawn here has none. */
  function named(svg, label) {
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
    for (const part of svg.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label");
    for (const part of svg.querySelectorAll("[aria-hidden]")) part.removeAttribute("aria-hidden");
    return svg;
  }

  function drawPanels(spec, place) {
    const grid = element("div", spec.panels.length === 3 ? "panels" : "panels two");
    place.replaceChildren(grid);
    const cells = spec.panels.map((panel) => {
      const cell = element("div"), title = element("p", "panel-title", panel.title);
      if (panel.unit) title.append(element("span", "unit", `, ${panel.unit}`));
      if (panel.better === "higher" || panel.better === "lower") title.append(element("span", "unit", ` (${panel.better} is better)`));
      cell.append(title);
      grid.append(cell);
      return cell;
    });
    const widths = cells.map((cell) => cell.clientWidth);
    spec.panels.forEach((panel, n) => cells[n].append(named(Marks.panels[spec.kind](panel, spec, widths[n]), panel.label)));
  }

  function drawWhole(spec, place) {
    place.replaceChildren();
    const made = Marks.whole[spec.kind](spec, Math.min(place.clientWidth, 860));
    if (made.kinds) {
      const keys = element("p", "panel-title");
      for (const kind of made.kinds) {
        const key = element("span", "key"), mark = element("span", "mark");
        mark.style.color = kind.colour;
        key.append(mark, kind.name);
        keys.append(key);
      }
      place.append(keys);
    }
    place.append(named(made.chart ?? made, spec.label));
  }

  function draw(place) {
    const spec = specs[Number(place.dataset.chart)];
    try {
      (spec.panels ? drawPanels : drawWhole)(spec, place);
      place.dataset.drawn = "yes";
    } catch (error) {
      place.replaceChildren(element("p", "missing", `This chart could not be drawn (${error.message}). The table below holds its data.`));
      console.error(error);
    }
  }

  const widths = new Map();
  const watch = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = Math.round(contentRect.width);
      if (width > 0 && widths.get(target) !== width) {
        widths.set(target, width);
        draw(target);
      }
    }
  });
  for (const place of document.querySelectorAll("[data-chart]")) watch.observe(place);
})();
