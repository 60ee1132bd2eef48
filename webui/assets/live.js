// Rates as they come: the tables and figures of a page while it is open, and on the dashboard three charts of the last
// minutes. Everything is there without it, with the rates of the moment when the page was made.
"use strict";

(() => {
  const root = document.querySelector("[data-live]");
  if (!root) { return; }

  const KEPT = 150;
  const LINES = 6;
  const UNITS = {
    bytes: ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"],
    operations: ["", "k", "M"],
    latency: ["µs", "ms", "s"],
  };
  const MEASURES = ["bytes_per_second", "iops", "mean_us"];
  // As many as src/ui/dashboard.rs puts into a table.
  const ROWS = 20;

  const charts = [...root.querySelectorAll("[data-chart]")];
  const times = [];
  // For each kind of line: key → measure → values, each as long as `times`.
  const history = { luns: new Map(), initiators: new Map() };
  let by = "luns";
  let drawn = "";

  // The same as in src/ui/words.rs.
  const shown = (value, unit) => {
    if (value === null || value === undefined) { return "–"; }
    if (unit === "count") { return String(value); }
    const names = UNITS[unit];
    let place = 0;
    while (value >= 1000 && place + 1 < names.length) { value /= 1000; place += 1; }
    const digits = value >= 99.95 || value === 0 ? 0 : value >= 9.995 ? 1 : 2;
    return `${value.toFixed(digits)} ${names[place]}`.trim();
  };

  // Rows of a sample by key. An initiator's LUNs are added up, its mean latency weighted by operations.
  const rows = (sample) => {
    const luns = new Map(sample.luns.map((row) => [`${row.target}/${row.lun}`, row]));
    const sessions = new Map(sample.sessions.map((row) => [String(row.tsih), row]));
    const initiators = new Map();
    for (const row of sample.initiators) {
      const known = initiators.get(row.initiator);
      if (!known) { initiators.set(row.initiator, { ...row }); continue; }
      const iops = known.iops + row.iops;
      const took = (known.mean_us ?? 0) * known.iops + (row.mean_us ?? 0) * row.iops;
      known.mean_us = iops > 0 ? took / iops : null;
      known.p99_us = Math.max(known.p99_us ?? 0, row.p99_us ?? 0) || null;
      known.iops = iops;
      known.bytes_per_second += row.bytes_per_second;
      known.in_flight += row.in_flight;
    }
    return { luns, initiators, sessions };
  };

  // Who is not in a sample did nothing; latency is not known then.
  const remember = (sample, found) => {
    times.push(sample.time / 1000);
    for (const [kind, lines] of Object.entries(history)) {
      for (const key of found[kind].keys()) {
        if (!lines.has(key)) {
          const before = times.length - 1;
          lines.set(key, { bytes_per_second: Array(before).fill(0), iops: Array(before).fill(0), mean_us: Array(before).fill(null) });
        }
      }
      for (const [key, line] of lines) {
        const row = found[kind].get(key);
        line.bytes_per_second.push(row?.bytes_per_second ?? 0);
        line.iops.push(row?.iops ?? 0);
        line.mean_us.push(row?.mean_us ?? null);
        if (times.length > KEPT) { MEASURES.forEach((measure) => line[measure].shift()); }
      }
    }
    if (times.length > KEPT) { times.shift(); }
  };

  const keys = (table) => new Set([...table.querySelectorAll("tr[data-key]")].map((row) => row.dataset.key));

  // The lines that are drawn: of those with a row, which tells whose the line is, the ones that moved most; by name, so that
  // a line keeps its colour.
  const busiest = () => {
    const table = root.querySelector(`table[data-by=${by}]`);
    const named = table ? keys(table) : new Set();
    const lines = [...history[by]].filter(([key]) => named.has(key)).map(([key, line]) => ({ key, line, sum: line.iops.reduce((all, it) => all + it, 0) }));
    const busy = lines.filter(({ sum }) => sum > 0).sort((one, other) => other.sum - one.sum);
    return busy.slice(0, LINES).sort((one, other) => one.key.localeCompare(other.key));
  };

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

  const build = (place, unit, lines, data) => {
    place.plot?.destroy();
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const line = (_, number) => ({ stroke: color(`--line-${number + 1}`), width: 2, points: { show: false } });
    place.plot = new uPlot({
      width: place.clientWidth,
      height: 170,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.15 : 1] } },
      series: [{}, ...lines.map(line)],
      axes: [
        { ...axis, space: 80, values: (_, ticks) => ticks.map(clock) },
        { ...axis, space: 36, size: 76, values: (_, ticks) => ticks.map((it) => shown(it, unit).replace(/\.0+(?= |$)/, "")) },
      ],
    }, data, place);
  };

  const draw = () => {
    if (charts.length === 0 || times.length === 0) { return; }
    const lines = busiest();
    const wanted = [by, color("--line-1"), ...lines.map(({ key }) => key)].join("\n");
    for (const place of charts) {
      const [measure, unit] = place.dataset.chart.split(":");
      const data = [times, ...lines.map(({ line }) => line[measure])];
      if (wanted === drawn) { place.plot.setData(data); } else { build(place, unit, lines, data); }
    }
    drawn = wanted;
    // The tables are the legend: a line's row has its colour.
    const numbers = new Map(lines.map(({ key }, number) => [key, number + 1]));
    for (const swatch of root.querySelectorAll("[data-swatch]")) {
      const row = swatch.closest("tr");
      const is = row.closest("table").dataset.by === by ? numbers.get(row.dataset.key) : undefined;
      swatch.dataset.swatch = is ?? "";
    }
  };

  // Who logged in or out since the page was made, and disks that are new, have no row yet or one too many: the node makes
  // those tables anew (hx-trigger="outdated"). Of a full table others are left out.
  const check = (sample, found) => {
    const there = { luns: new Set(found.luns.keys()), initiators: new Set(sample.sessions.map((row) => row.initiator)) };
    for (const part of root.querySelectorAll("[data-rows]")) {
      const kind = part.dataset.rows;
      const rows = keys(part);
      const lacks = rows.size < ROWS && [...there[kind]].some((key) => !rows.has(key));
      // Of a disk that was never used no sample knows.
      const isOver = kind === "initiators" && [...rows].some((key) => !there[kind].has(key));
      if (lacks || isOver) { htmx.trigger(part, "outdated"); }
    }
  };

  const tell = (sample, found) => {
    for (const row of root.querySelectorAll("tr[data-key]")) {
      const kind = row.closest("table").dataset.by;
      const rates = found[kind].get(row.dataset.key);
      for (const cell of row.querySelectorAll("[data-value]")) {
        const [name, unit] = cell.dataset.value.split(":");
        cell.textContent = shown(rates?.[name], unit);
      }
    }
    for (const figure of root.querySelectorAll("[data-total]")) {
      const [name, unit] = figure.dataset.total.split(":");
      figure.textContent = shown(sample.total[name], unit);
    }
    for (const figure of root.querySelectorAll("[data-sessions]")) { figure.textContent = sample.sessions.length; }
    check(sample, found);
  };

  const take = (sample) => {
    const found = rows(sample);
    if (charts.length > 0) { remember(sample, found); }
    return found;
  };

  const follow = () => {
    const source = new EventSource("/api/v1/stats/stream");
    source.onmessage = (message) => {
      const sample = JSON.parse(message.data);
      tell(sample, take(sample));
      draw();
    };
    window.addEventListener("pagehide", () => source.close());
  };

  const begin = async () => {
    if (charts.length > 0) {
      const answer = await fetch("/api/v1/stats/history");
      if (answer.ok) { (await answer.json()).samples.forEach(take); }
      root.querySelector("[data-charts]").hidden = false;
      const choice = root.querySelector("[data-by-switch]");
      choice.hidden = false;
      choice.addEventListener("change", (event) => { by = event.target.value; draw(); });
      draw();
      // Rows that have come get their colours.
      root.addEventListener("htmx:load", draw);
      new ResizeObserver(() => {
        for (const place of charts) { place.plot?.setSize({ width: place.clientWidth, height: 170 }); }
      }).observe(root);
      // Colours follow the theme.
      new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    }
    follow();
  };
  begin();
})();
