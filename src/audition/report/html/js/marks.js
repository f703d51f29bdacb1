/* Draws one panel of each kind of chart with Observable Plot. Knows data and marks, not the page. */
"use strict";
const Marks = (() => {
  const SYMBOLS = ["circle", "diamond", "square", "triangle", "star", "cross"];
  const arm = (arms, name) => `var(--arm-${Math.max(0, arms.indexOf(name)) % 6})`;
  const symbol = (arms, name) => SYMBOLS[Math.max(0, arms.indexOf(name)) % SYMBOLS.length];
  const soft = "var(--soft)", ink = "var(--ink)", line = "var(--line)";
  const halo = { stroke: "var(--card)", strokeWidth: 4, paintOrder: "stroke" };
  const legTitle = (d) => `leg ${d.leg}, ${d.arm}`;

  const plain = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
  const tick = (v) => plain.format(v);

  function base(width, height, options) {
    return Plot.plot({
      width, height, marginTop: 14, marginRight: 12, marginBottom: 34, marginLeft: 46,
      style: { background: "transparent", fontSize: "12px", color: ink, overflow: "visible" }, ...options,
    });
  }

  const text = (length) => (length > 13 ? `${7.1 * length}` : `${7.3 * length}`) * 1;

  /* Places for labels at the right edge, at least `gap` pixels apart, as values of the y scale. */
  function apart(items, toPixel, fromPixel, gap) {
    const sorted = items.map((d) => ({ ...d, at: toPixel(d.value) })).sort((a, b) => a.at - b.at);
    for (let i = 1; i < sorted.length; i += 1) sorted[i].at = Math.max(sorted[i].at, sorted[i - 1].at + gap);
    return sorted.map((d) => ({ ...d, place: fromPixel(d.at) }));
  }

  /* A y domain in which differences of a few per cent stay small. */
  function domainOf(values) {
    const low = Math.min(...values), high = Math.max(...values), middle = (low + high) / 2;
    const half = Math.max((high - low) / 2 * 1.25, Math.abs(middle) * 0.12, 1e-9);
    return [Math.max(0, middle - half), middle + half];
  }

  function legs(panel, spec, width) {
    const seen = panel.points.filter((p) => p.value !== null), gone = panel.points.filter((p) => p.value === null);
    const domain = domainOf([...seen.map((p) => p.value), ...panel.limits.map((l) => l.value)]);
    const height = 196, top = 16, bottom = 40;
    const toPixel = (v) => top + (domain[1] - v) / (domain[1] - domain[0]) * (height - top - bottom);
    const fromPixel = (p) => domain[1] - (p - top) / (height - top - bottom) * (domain[1] - domain[0]);
    const last = [...new Map(seen.map((p) => [p.arm, p])).values()];
    const ends = apart(last, toPixel, fromPixel, 15);
    const room = Math.min(104, 14 + Math.max(...ends.map((e) => text(e.arm.length))));
    const marks = [
      Plot.gridY({ stroke: line, strokeOpacity: 1, ticks: 4 }),
      Plot.ruleY(panel.limits, { y: "value", stroke: "var(--bad)", strokeDasharray: "5 3" }),
      Plot.text(panel.limits, { x: () => spec.legs[0].leg, y: "value", text: "text", dy: -7, textAnchor: "start", dx: -8, fill: "var(--bad)", ...halo }),
      Plot.line(seen, { x: "leg", y: "value", z: "arm", stroke: (d) => arm(spec.arms, d.arm), strokeWidth: 1.5, strokeOpacity: 0.7 }),
      Plot.dot(seen, { x: "leg", y: "value", fill: (d) => arm(spec.arms, d.arm), symbol: (d) => symbol(spec.arms, d.arm), r: 4.5, channels: { why: "why" }, title: (d) => `${legTitle(d)}\n${d.text} ${panel.unit}`, tip: { format: { x: false, y: false } } }),
      Plot.text(seen, { x: "leg", y: "value", text: "text", dy: -11, fontSize: 11, fill: ink, ...halo }),
      Plot.text(gone, { x: "leg", frameAnchor: "bottom", dy: -4, text: () => "no data", fontSize: 11, fill: soft, rotate: -90, textAnchor: "start" }),
      Plot.text(ends, { x: () => spec.legs[spec.legs.length - 1].leg, y: "place", text: "arm", dx: 24, textAnchor: "start", fontWeight: 600, fill: (d) => arm(spec.arms, d.arm), ...halo }),
    ];
    return base(width, height, {
      marginTop: top, marginBottom: bottom, marginRight: room,
      x: { type: "point", domain: spec.legs.map((l) => l.leg), label: "leg", labelAnchor: "left", labelArrow: "none", tickSize: 0, padding: 0.35 },
      y: { domain, ticks: 4, label: null, tickSize: 0, tickFormat: tick }, symbol: { type: "identity" }, marks,
    });
  }

  const READING = { better: "var(--good)", worse: "var(--bad)" };
  function ratios(spec, width) {
    const rows = spec.rows.map((r, i) => ({ ...r, i }));
    const all = rows.flatMap((r) => [r.ratio, r.low ?? r.ratio, r.high ?? r.ratio, ...r.pairs, ...r.limits.map((l) => l.value)]);
    const low = Math.min(0.8, ...all) * 0.96, high = Math.max(1.25, ...all) * 1.04;
    const colour = (d) => READING[d.reading] ?? soft;
    const limits = rows.flatMap((r) => r.limits.map((l) => ({ ...l, i: r.i })));
    const pairs = rows.flatMap((r) => r.pairs.map((value) => ({ value, i: r.i })));
    const near = (d) => `${d.text.replace(/ \(one pair, no interval\)/, "")}  ${d.reading}`;
    const narrow = width < 560, step = narrow ? 70 : 52, height = 48 + step * rows.length;
    const down = narrow ? 17 : 8, first = narrow ? -22 : -12, second = narrow ? -6 : -12, side = narrow ? "left" : "right";
    const marks = [
      Plot.gridX({ stroke: line, strokeOpacity: 1 }), Plot.ruleX([1], { stroke: ink, strokeWidth: 1.2 }),
      Plot.ruleY(rows.filter((r) => r.low !== null && r.high !== null), { y: "i", x1: "low", x2: "high", stroke: colour, strokeWidth: 5, strokeOpacity: 0.5, dy: down }),
      Plot.dot(pairs, { x: "value", y: "i", r: 3, stroke: soft, dy: down }),
      Plot.dot(rows, { x: "ratio", y: "i", r: 5.5, fill: colour, dy: down, title: (d) => `${d.name}\n${d.text}\n${d.reading}`, tip: true }),
      Plot.tickX(limits, { x: "value", y: "i", stroke: "var(--bad)", strokeDasharray: "4 2", strokeWidth: 2, insetTop: down + (narrow ? 26 : 14), insetBottom: narrow ? 9 : 9 }),
      Plot.text(limits, { x: "value", y: "i", text: "text", dy: down + 14, fontSize: 10.5, fill: "var(--bad)", ...halo }),
      Plot.text(rows, { y: "i", frameAnchor: "left", text: "name", dy: first, textAnchor: "start", fontWeight: 600, fill: ink, ...halo }),
      Plot.text(rows, { y: "i", frameAnchor: side, text: near, dy: second, textAnchor: narrow ? "start" : "end", fill: colour, ...halo }),
    ];
    return base(width, height, {
      marginLeft: 2, marginRight: 2, marginTop: 8, marginBottom: 42,
      x: { type: "log", domain: [low, high], label: `${spec.title} (log scale)`, labelAnchor: "left", labelArrow: "none", ticks: ratioTicks(low, high, width), tickFormat: tick, tickSize: 0 },
      y: { type: "band", domain: rows.map((r) => r.i), axis: null, padding: 0 }, marks,
    });
  }

  function ratioTicks(low, high, width) {
    const good = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2, 3, 5, 7, 10, 20, 50].filter((v) => v >= low && v <= high);
    const span = Math.log(high / low);
    let kept = [1];
    for (const v of good) if (kept.every((k) => Math.abs(Math.log(k / v)) / span * width > 42)) kept.push(v);
    return kept.sort((a, b) => a - b);
  }

  function ecdf(panel, spec, width) {
    const rows = panel.curves.flatMap((c) => c.values.map((value, n) => ({ value, share: spec.shares[n], leg: c.leg, arm: c.arm })));
    const values = rows.map((r) => r.value).filter((v) => v > 0);
    const low = Math.min(...values), high = Math.max(...values), log = values.length > 0 && high / low > 5;
    const shown = log ? rows.filter((r) => r.value > 0) : rows;
    return base(width, 206, {
      marginLeft: 48, marginBottom: 40,
      x: { type: log ? "log" : "linear", label: `${panel.unit}${log ? " (log scale)" : ""}`, labelAnchor: "right", labelArrow: "none", tickFormat: tick, ticks: log ? logTicks(low, high, width) : Math.max(3, Math.floor(width / 75)), tickSize: 3, nice: !log, zero: false },
      y: { domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], tickFormat: (v) => `${Math.round(100 * v)} %`, label: null, tickSize: 0 },
      marks: [
        Plot.gridY({ stroke: line, strokeOpacity: 1, ticks: [0, 0.25, 0.5, 0.75, 1] }),
        Plot.line(shown, { x: "value", y: "share", z: "leg", curve: "step-after", stroke: (d) => arm(spec.arms, d.arm), strokeWidth: 1.6, strokeOpacity: 0.85 }),
        Plot.tip(shown, Plot.pointer({ x: "value", y: "share", maxRadius: 30, title: (d) => `${legTitle(d)}\n${Math.round(1000 * d.share) / 10} % within ${tick(d.value)} ${panel.unit}` })),
      ],
    });
  }

  function logTicks(low, high, width) {
    const out = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p += 1)
      for (const m of [1, 2, 5]) { const v = m * 10 ** p; if (v >= low * 0.999 && v <= high * 1.001) out.push(v); }
    const most = Math.max(2, Math.floor(width / 60));
    return out.length > most ? out.filter((v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6 || out.length < 2) : out;
  }

  function users(spec, width) {
    const points = spec.points, counts = [...new Set(points.map((p) => p.users))].sort((a, b) => a - b);
    const most = Math.max(...points.map((p) => p.users));
    const last = [...new Map(points.filter((p) => p.users === most).map((p) => [p.arm, p])).values()];
    const height = 300, top = 14, bottom = 38, high = Math.max(...points.map((p) => p.value)) * 1.08;
    const toPixel = (v) => top + (high - v) / high * (height - top - bottom);
    const fromPixel = (p) => high - (p - top) / (height - top - bottom) * high;
    const ends = apart(last, toPixel, fromPixel, 16);
    const room = Math.min(110, 18 + Math.max(...ends.map((e) => text(e.arm.length))));
    return base(width, height, {
      marginTop: top, marginBottom: bottom, marginRight: room, marginLeft: 50,
      x: { type: counts.length > 1 ? "log" : "linear", base: 2, ticks: counts, tickFormat: tick, label: "users at once (log scale)", labelAnchor: "left", labelArrow: "none", tickSize: 3, insetLeft: 12 },
      y: { domain: [0, high], label: "tok/s", labelArrow: "none", tickFormat: tick, tickSize: 0, ticks: 5 }, symbol: { type: "identity" },
      marks: [
        Plot.gridY({ stroke: line, strokeOpacity: 1, ticks: 5 }),
        Plot.line(points, { x: "users", y: "value", z: (d) => `${d.leg} ${d.family}`, stroke: (d) => arm(spec.arms, d.arm), strokeWidth: 1.5, strokeOpacity: 0.7 }),
        Plot.dot(points, { x: "users", y: "value", fill: (d) => arm(spec.arms, d.arm), symbol: (d) => symbol(spec.arms, d.arm), r: 4, title: (d) => `${legTitle(d)}\n${d.workload}: ${tick(d.value)} tok/s`, tip: { format: { x: false, y: false } } }),
        Plot.text(ends, { x: () => most, y: "place", text: "arm", dx: 12, textAnchor: "start", fontWeight: 600, fill: (d) => arm(spec.arms, d.arm), ...halo }),
      ],
    });
  }

  function positions(panel, spec, width) {
    const rows = panel.curves.flatMap((c) => c.rates.map((rate, n) => ({ rate, position: n + 1, leg: c.leg, arm: c.arm })));
    const first = rows.filter((r) => r.leg === panel.curves[0].leg);
    return base(width, 196, {
      marginLeft: 48, marginBottom: 40,
      x: { type: "point", domain: d3.range(1, spec.depth + 1), label: "draft position", labelAnchor: "left", labelArrow: "none", tickSize: 0, padding: 0.4 },
      y: { domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], tickFormat: (v) => `${Math.round(100 * v)} %`, label: null, tickSize: 0 }, symbol: { type: "identity" },
      marks: [
        Plot.gridY({ stroke: line, strokeOpacity: 1, ticks: [0, 0.25, 0.5, 0.75, 1] }),
        Plot.line(rows, { x: "position", y: "rate", z: "leg", stroke: (d) => arm(spec.arms, d.arm), strokeWidth: 1.5, strokeOpacity: 0.7 }),
        Plot.dot(rows, { x: "position", y: "rate", fill: (d) => arm(spec.arms, d.arm), symbol: (d) => symbol(spec.arms, d.arm), r: 4, title: (d) => `${legTitle(d)}\nposition ${d.position}: ${(100 * d.rate).toFixed(1)} %`, tip: { format: { x: false, y: false } } }),
        Plot.text(first, { x: "position", y: "rate", text: (d) => `${Math.round(100 * d.rate)} %`, dy: -12, fontSize: 11, ...halo }),
      ],
    });
  }

  function bars(panel, spec, width) {
    const rows = panel.bars, most = Math.max(...rows.map((r) => r.value), 1e-9);
    return base(width, 14 + 42 * rows.length, {
      marginLeft: 2, marginRight: 2, marginTop: 4, marginBottom: 6,
      x: { domain: [0, most * 1.28], axis: null }, y: { type: "band", domain: rows.map((r) => r.name), axis: null, padding: 0 },
      marks: [
        Plot.barX(rows, { x: "value", y: "name", fill: (d) => arm(spec.arms, d.arm), insetTop: 20, insetBottom: 6, title: (d) => `${d.name}\n${d.text} ${panel.unit}`, tip: { format: { x: false, y: false } } }),
        Plot.text(rows, { y: "name", frameAnchor: "left", text: "name", dy: -11, textAnchor: "start" }),
        Plot.text(rows, { x: "value", y: "name", text: "text", dx: 5, dy: 7, textAnchor: "start", fontWeight: 600 }),
      ],
    });
  }

  function boots(spec, width) {
    const kinds = [...new Set(spec.bars.flatMap((b) => b.segments.map((s) => s.name)))];
    const rows = spec.bars.flatMap((b) => b.segments.map((s) => ({ ...s, leg: b.name })));
    const most = Math.max(...spec.bars.map((b) => b.total), 1e-9);
    const seg = (name) => `var(--seg-${kinds.indexOf(name) % 3})`;
    const chart = base(width, 42 + 44 * spec.bars.length, {
      marginLeft: 2, marginRight: 2, marginTop: 4, marginBottom: 38,
      x: { domain: [0, most * 1.15], label: "seconds", labelArrow: "none", labelAnchor: "right", ticks: Math.max(3, Math.floor(width / 110)), tickSize: 3 },
      y: { type: "band", domain: spec.bars.map((b) => b.name), axis: null, padding: 0 },
      marks: [
        Plot.barX(rows, Plot.stackX({ order: kinds, x: "seconds", y: "leg", z: "name", fill: (d) => seg(d.name), insetTop: 20, insetBottom: 6, title: (d) => `${d.leg}\n${d.name}: ${tick(d.seconds)} s`, tip: { format: { x: false, y: false } } })),
        Plot.text(spec.bars, { y: "name", frameAnchor: "left", text: "name", dy: -12, textAnchor: "start", fill: (d) => arm(spec.arms, d.arm), fontWeight: 600 }),
        Plot.text(spec.bars, { x: "total", y: "name", text: "text", dx: 5, dy: 7, textAnchor: "start", fontWeight: 600 }),
      ],
    });
    return { chart, kinds: kinds.map((name) => ({ name, colour: seg(name) })) };
  }

  function course(spec, width) {
    const most = Math.max(...spec.spans.map((s) => s.end)), minutes = most > 180, scale = minutes ? 60 : 1;
    const rows = spec.spans.map((s) => ({ ...s, x1: s.begin / scale, x2: s.end / scale, length: s.end - s.begin }));
    const of = (...kinds) => rows.filter((r) => kinds.includes(r.kind));
    const title = (d) => `${d.row}\n${d.name}: ${tick(d.length)} s, from ${tick(d.begin)} s`;
    const tip = { format: { x: false, y: false } };
    const common = { x1: "x1", x2: "x2", y: "row", insetTop: 20, insetBottom: 4 };
    const colour = (d) => arm(spec.arms, d.arm);
    const armOf = (row) => spec.legs.find((l) => row === `leg ${l.leg}, ${l.arm}`)?.arm ?? "";
    return base(width, 44 + 42 * spec.rows.length, {
      marginLeft: 2, marginRight: 2, marginTop: 4, marginBottom: 40,
      x: { domain: [0, most / scale * 1.01], label: `${minutes ? "minutes" : "seconds"} since the run's start`, labelArrow: "none", labelAnchor: "right", tickSize: 3, ticks: Math.max(3, Math.floor(width / 90)) },
      y: { type: "band", domain: spec.rows, axis: null, padding: 0 },
      marks: [
        Plot.gridX({ stroke: line, strokeOpacity: 1 }),
        Plot.barX(of("boot"), { ...common, fill: colour, fillOpacity: 0.28, stroke: colour, title, tip }),
        Plot.barX(of("leg"), { ...common, fill: colour, fillOpacity: 0.5, title, tip }),
        Plot.barX(of("workload"), { ...common, fill: colour, stroke: "var(--paper)", strokeWidth: 0.8, title, tip }),
        Plot.barX(of("restore"), { ...common, fill: colour, title, tip }),
        Plot.text(of("boot"), { x: (d) => (d.x1 + d.x2) / 2, y: "row", text: (d) => (d.length / most * width > 36 ? "boot" : ""), dy: 8, fontSize: 11 }),
        Plot.text(spec.rows, { y: (d) => d, frameAnchor: "left", text: (d) => d, dy: -11, textAnchor: "start", fontWeight: 600, fill: (d) => (armOf(d) ? arm(spec.arms, armOf(d)) : ink), ...halo, stroke: "var(--paper)" }),
      ],
    });
  }

  function series(panel, spec, width) {
    const rows = panel.curves.flatMap((c) => c.points.map(([at, value]) => ({ at, value, leg: c.leg, arm: c.arm })));
    return base(width, 196, {
      marginBottom: 40,
      x: { label: "seconds since the workload's start", labelAnchor: "right", labelArrow: "none", tickSize: 3, ticks: Math.max(3, Math.floor(width / 90)) },
      y: { zero: true, nice: true, label: null, tickSize: 0, ticks: 4, tickFormat: tick },
      marks: [
        Plot.gridY({ stroke: line, strokeOpacity: 1, ticks: 4 }),
        Plot.line(rows, { x: "at", y: "value", z: "leg", stroke: (d) => arm(spec.arms, d.arm), strokeWidth: 1.5, strokeOpacity: 0.85 }),
        Plot.tip(rows, Plot.pointer({ x: "at", y: "value", maxRadius: 30, title: (d) => `${legTitle(d)}\n${tick(d.value)} ${panel.unit} at ${tick(d.at)} s` })),
      ],
    });
  }

  return { panels: { legs, ecdf, positions, bars, series }, whole: { ratios, users, boots, course } };
})();
