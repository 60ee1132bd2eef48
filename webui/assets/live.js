// The dashboard while it is open: three charts over the last minutes, and the rates in the tables, once a second.
// The tables are there without it, with the rates of the moment when the page was made.
"use strict";

(() => {
  const root = document.querySelector("[data-live]");
  if (!root) return;

  const KEPT = 120;
  const LINES = 6;
  const UNITS = {
    bytes: { factor: 1000, names: ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"] },
    operations: { factor: 1000, names: ["/s", "k/s", "M/s"] },
    latency: { factor: 1000, names: ["µs", "ms", "s"] },
  };

  /** Rows of each table by key, with the cells that change. */
  const tables = [...root.querySelectorAll("table[data-by]")];
  const charts = [...root.querySelectorAll("[data-chart]")];
  const times = [];
  /** key → { bytes: [], operations: [], latency: [] }, as long as `times`. */
  const history = { lun: new Map(), initiator: new Map() };
  let by = "lun";
  let drawn = "";

  function shown(value, unit) {
    if (value === null || value === undefined) return "–";
    const { factor, names } = UNITS[unit];
    let place = 0;
    while (value >= factor && place < names.length - 1) {
      value /= factor;
      place += 1;
    }
    const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
    return `${value.toFixed(digits)} ${names[place]}`;
  }

  function remember(sample) {
    times.push(sample.time / 1000);
    for (const kind of ["lun", "initiator"]) {
      const known = history[kind];
      for (const row of sample[kind]) {
        if (!known.has(row.key)) {
          const blank = () => new Array(times.length - 1).fill(null);
          known.set(row.key, { name: row.name, bytes: blank(), operations: blank(), latency: blank() });
        }
      }
      const rows = new Map(sample[kind].map((row) => [row.key, row]));
      for (const [key, line] of known) {
        const row = rows.get(key);
        line.bytes.push(row ? row.bytes : null);
        line.operations.push(row ? row.operations : null);
        line.latency.push(row && row.latency !== null ? row.latency : null);
        for (const values of [line.bytes, line.operations, line.latency]) {
          if (values.length > KEPT) values.shift();
        }
        if (line.bytes.every((value) => value === null)) known.delete(key);
      }
    }
    if (times.length > KEPT) times.shift();
  }

  /** The lines that are drawn: those that moved most, in an order that stays. */
  function busiest() {
    const sum = (line) => line.bytes.reduce((all, value) => all + (value ?? 0), 0);
    const lines = [...history[by]].map(([key, line]) => ({ key, line, sum: sum(line) }));
    lines.sort((one, other) => other.sum - one.sum || one.key.localeCompare(other.key));
    return lines.slice(0, LINES).sort((one, other) => one.key.localeCompare(other.key));
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function draw() {
    const lines = busiest();
    const theme = color("--line-1") + color("--muted");
    const wanted = by + theme + lines.map(({ key }) => key).join("\n");
    for (const place of charts) {
      const unit = place.dataset.chart;
      const data = [times, ...lines.map(({ line }) => line[unit])];
      if (wanted !== drawn) build(place, unit, lines, data);
      else place.plot.setData(data);
    }
    drawn = wanted;
    mark(lines);
  }

  function build(place, unit, lines, data) {
    place.plot?.destroy();
    const axis = { stroke: color("--muted"), grid: { stroke: color("--border"), width: 1 }, ticks: { show: false } };
    const font = "11px system-ui, sans-serif";
    const series = lines.map((_, number) => ({
      stroke: color(`--line-${number + 1}`),
      width: 2,
      spanGaps: false,
      points: { show: false },
    }));
    place.plot = new uPlot(
      {
        width: place.clientWidth,
        height: 160,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        series: [{}, ...series],
        axes: [
          { ...axis, font, space: 70, values: (_, ticks) => ticks.map(clock) },
          { ...axis, font, size: 70, values: (_, ticks) => ticks.map((value) => shown(value, unit)) },
        ],
      },
      data,
      place,
    );
  }

  function clock(seconds) {
    return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  }

  /** The table is the legend: a line's row has its colour. */
  function mark(lines) {
    const numbers = new Map(lines.map(({ key }, number) => [key, number + 1]));
    for (const swatch of root.querySelectorAll("[data-swatch]")) {
      const row = swatch.closest("tr");
      const is = row.closest("table").dataset.by === by ? numbers.get(row.dataset.key) : undefined;
      swatch.dataset.swatch = is ?? "";
    }
  }

  function tell(sample) {
    for (const table of tables) {
      const rows = new Map(sample[table.dataset.by].map((row) => [row.key, row]));
      for (const tr of table.tBodies[0].rows) {
        const row = rows.get(tr.dataset.key);
        for (const cell of tr.querySelectorAll("[data-value]")) {
          const [name, unit] = cell.dataset.value.split(":");
          cell.textContent = shown(row ? row[name] : 0, unit);
        }
      }
    }
  }
})();
