"use strict";
(() => {
  const data = JSON.parse(document.getElementById("attention").textContent);
  if (!data.runs.length) return;
  const find = (id) => document.getElementById(id);
  const unique = (values) => [...new Set(values)];
  const range = (n) => [...Array(n).keys()];

  // What is shown. Both panels share the query, so that two mechanisms can be compared.
  const state = { graph: 0, query: null, panels: [] };

  function element(name, attributes = {}, ...children) {
    const svg = ["svg", "polyline", "line", "text", "circle"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  function fill(select, values, chosen, label = (value) => value) {
    select.replaceChildren(...values.map((value) => {
      const option = element("option", { value }, String(label(value)));
      option.selected = value === chosen;
      return option;
    }));
    select.disabled = values.length < 2;
  }

  // The runs of one family, size and seed see the same graphs: a scene.
  const inScene = () => data.runs.filter((run) =>
    run.family === state.family && run.settings === state.settings && run.seed === state.seed);

  // [query][key], without the self-loop, which is the last key if there is one; null if the run diverged.
  function weightsOf(panel) {
    const k = panel.run.values[0].length;
    const rows = panel.run.weights[state.graph][panel.head].map((row) => row.slice(0, k));
    return rows.some((row) => row.includes(null)) ? null : rows.map((row) => row.map((w) => w / data.unit));
  }

  const ranking = (row) => range(row.length).sort((a, b) => row[b] - row[a] || a - b);
  const two = (weight) => weight.toFixed(2);

  // Records hold four decimals: two keys that round to the same weight may be in either order, so
  // rankings differ only where two queries strictly contradict each other.
  function oneRanking(weights) {
    const keys = range(weights[0].length);
    return !keys.some((a) => keys.some((b) =>
      weights.some((row) => row[a] > row[b]) && weights.some((row) => row[a] < row[b])));
  }

  function verdict(weights) {
    if (!weights) return ["No verdict", "this run diverged, so its weights are not numbers."];
    const n = weights.length;
    const tops = weights.map((row) => Math.max(...row));
    const common = range(n).find((key) => weights.every((row, query) => row[key] === tops[query]));
    if (common !== undefined) {
      const rest = oneRanking(weights) ? "and rank all keys in the same order" : "but rank the other keys in different orders";
      return ["Static", `all ${n} queries rank key ${common} first, ${rest}.`];
    }
    const first = weights.map((row) => ranking(row)[0]);
    const choices = unique(first).length;
    const own = first.filter((key, query) => key === query).length;
    const which = own === n ? "each its own key" : `${own} of them ${own === 1 ? "its" : "their"} own key`;
    return ["Dynamic", `${choices} different first choices for ${n} queries, ${which}.`];
  }

  function makePanel(run) {
    const panel = { run, head: 0, node: element("div", { class: "panel" }) };
    panel.mechanism = element("select", { class: "mechanism", "aria-label": "Mechanism" });
    panel.heads = element("select", { class: "head", "aria-label": "Head" });
    panel.verdict = element("p", { class: "verdict", "aria-live": "polite" });
    panel.heat = element("table", { class: "heat" });
    panel.words = element("p", { class: "ranking", "aria-live": "polite" });
    panel.bars = element("ol", { class: "bars" });
    panel.legend = element("p", { class: "small soft legend" });
    panel.lines = element("svg", { class: "lines", viewBox: "0 0 320 130", role: "img" });
    panel.node.append(
      element("div", { class: "controls" },
        element("label", {}, "Mechanism ", panel.mechanism), element("label", {}, "Head ", panel.heads)),
      panel.verdict, panel.heat, panel.words, panel.bars, panel.lines, panel.legend);
    panel.mechanism.addEventListener("change", () => {
      panel.run = inScene().find((each) => each.title === panel.mechanism.value);
      panel.head = 0;
      draw();
    });
    panel.heads.addEventListener("change", () => { panel.head = Number(panel.heads.value); draw(); });
    listen(panel);
    return panel;
  }

  function listen(panel) {
    const choose = (event) => {
      const row = event.target.closest("tbody tr");
      if (row && Number(row.dataset.query) !== state.query) { state.query = Number(row.dataset.query); mark(); }
    };
    for (const kind of ["click", "focusin"]) panel.heat.addEventListener(kind, choose);
    panel.heat.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") choose(event); });
    panel.heat.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const buttons = [...panel.heat.querySelectorAll("button")];
      const next = buttons[state.query + step];
      if (next) { event.preventDefault(); next.focus(); }
    });
  }

  function drawHeat(panel, weights) {
    const k = panel.run.values[0].length;
    const head = element("tr", {}, element("td"), ...range(k).map((key) => element("th", { scope: "col" }, `k${key}`)));
    head.firstChild.style.background = "none";
    const body = range(k).map((query) => {
      const button = element("button", { type: "button", "aria-label": `query ${query}` }, `q${query}`);
      const cells = range(k).map((key) => {
        const weight = weights ? weights[query][key] : NaN;
        const cell = element("td", {}, weights ? two(weight).replace(/^0/, "") : "–");
        const depth = weights ? Math.pow(weight, 0.7) : 0;  // pale weights stay visible
        cell.style.setProperty("--depth", depth.toFixed(3));
        cell.title = `query ${query}, key ${key}` + (weights ? `: ${weight.toFixed(4)}` : "");
        if (depth > 0.62) cell.classList.add("deep");
        if (key === query) cell.classList.add("own");
        return cell;
      });
      return element("tr", { "data-query": query }, element("th", { scope: "row" }, button), ...cells);
    });
    panel.heat.replaceChildren(
      element("caption", { class: "small soft" }, "keys, from left to right"),
      element("thead", {}, head), element("tbody", {}, ...body));
  }

  function drawLines(panel, weights) {
    panel.lines.replaceChildren();
    if (!weights) return;
    const k = weights.length;
    const top = Math.max(...weights.flat()) > 0.5 ? 1 : 0.5;
    const x = (key) => 26 + key * (284 / Math.max(1, k - 1));
    const y = (weight) => 112 - 104 * weight / top;
    for (const level of [0, top / 2, top]) {
      panel.lines.append(
        element("line", { class: "axis", x1: 22, x2: 316, y1: y(level), y2: y(level) }),
        element("text", { x: 18, y: y(level) + 3, "text-anchor": "end" }, level === 0 || level === 1 ? String(level) : String(level).replace(/^0/, "")));
    }
    range(k).forEach((key) => panel.lines.append(element("text", { x: x(key), y: 126, "text-anchor": "middle" }, `k${key}`)));
    weights.forEach((row, query) => panel.lines.append(element("polyline", {
      points: row.map((weight, key) => `${x(key).toFixed(1)},${y(weight).toFixed(1)}`).join(" "),
      stroke: data.colours[query % data.colours.length], "data-query": query,
    })));
  }

  function drawRanking(panel, weights) {
    const query = state.query;
    panel.bars.replaceChildren();
    panel.legend.textContent = weights ? `Each line is a query's attention to the keys; the bold one is query ${query}'s.` : "";
    if (!weights) { panel.words.textContent = ""; return; }
    const row = weights[query];
    const order = ranking(row);
    const shown = order.slice(0, 3).map((key) => `key ${key} ${two(row[key])}`).join(", ");
    panel.words.textContent = `query ${query} ranks: ${shown}${order.length > 3 ? " …" : ""}`;
    const values = panel.run.values[state.graph];
    panel.bars.append(...order.map((key) => {
      const bar = element("i");
      bar.style.width = `${100 * row[key]}%`;
      const item = element("li", { title: `key ${key} holds value ${values[key]}` },
        element("span", {}, `key ${key}`), element("span", { class: "bar" }, bar), element("span", {}, row[key].toFixed(3)));
      if (key === query) item.classList.add("own");
      return item;
    }));
  }

  // The chosen query, in every panel.
  function mark() {
    for (const panel of state.panels) {
      for (const row of panel.heat.querySelectorAll("tbody tr")) {
        const chosen = Number(row.dataset.query) === state.query;
        row.setAttribute("aria-current", String(chosen));
        row.querySelector("button").tabIndex = chosen ? 0 : -1;
      }
      const lines = [...panel.lines.querySelectorAll("polyline")];
      for (const line of lines) line.classList.toggle("chosen", Number(line.dataset.query) === state.query);
      const chosen = lines.find((line) => line.classList.contains("chosen"));
      if (chosen) panel.lines.append(chosen);  // on top
      drawRanking(panel, panel.weights);
    }
  }

  function drawPanel(panel) {
    fill(panel.mechanism, inScene().map((run) => run.title), panel.run.title);
    fill(panel.heads, range(panel.run.weights[0].length), panel.head, (head) => head + 1);
    panel.node.style.setProperty("--tone", panel.run.colour);
    panel.weights = weightsOf(panel);
    const [kind, words] = verdict(panel.weights);
    panel.verdict.replaceChildren(element("b", {}, kind), `: ${words} This run: ${panel.run.accuracy}.`);
    panel.lines.setAttribute("aria-label", `attention of each query to the keys, ${panel.run.title}`);
    drawHeat(panel, panel.weights);
    drawLines(panel, panel.weights);
  }

  function drawScene() {
    const families = unique(data.runs.map((run) => run.family));
    const ofFamily = data.runs.filter((run) => run.family === state.family);
    const ofSize = ofFamily.filter((run) => run.settings === state.settings);
    fill(find("family"), families, state.family);
    find("family-label").hidden = families.length < 2;
    fill(find("settings"), unique(ofFamily.map((run) => run.settings)), state.settings);
    fill(find("seed"), unique(ofSize.map((run) => run.seed)), state.seed);
    const graphs = inScene()[0].values.length;
    state.graph = Math.min(state.graph, graphs - 1);
    find("graphs").replaceChildren(...range(graphs).map((graph) => {
      const button = element("button", { type: "button", "aria-pressed": String(graph === state.graph) }, String(graph + 1));
      button.addEventListener("click", () => { state.graph = graph; draw(); find("graphs").children[graph].focus(); });
      return button;
    }));
  }

  function draw() {
    drawScene();
    const k = inScene()[0].values[0].length;
    state.query = state.query === null ? Math.min(3, k - 1) : Math.min(state.query, k - 1);
    state.panels.forEach(drawPanel);
    mark();
  }

  // Change the scene: keep what exists there, else take the first.
  function changeScene(change) {
    Object.assign(state, change);
    const keep = (name, runs) => {
      if (!runs.some((run) => run[name] === state[name])) state[name] = runs[0][name];
      return runs.filter((run) => run[name] === state[name]);
    };
    keep("seed", keep("settings", keep("family", data.runs)));
    const runs = inScene();
    state.panels.forEach((panel, index) => {
      const same = (name) => runs.find((run) => run[name] === panel.run[name]);
      panel.run = same("title") || same("mechanism") || runs[index % runs.length];
      panel.head = Math.min(panel.head, panel.run.weights[0].length - 1);
    });
    draw();
  }

  find("family").addEventListener("change", (event) => changeScene({ family: event.target.value }));
  find("settings").addEventListener("change", (event) => changeScene({ settings: event.target.value }));
  find("seed").addEventListener("change", (event) => changeScene({ seed: Number(event.target.value) }));

  const [left, right] = data.start;
  const first = data.runs[left];
  Object.assign(state, { family: first.family, settings: first.settings, seed: first.seed });
  state.panels = unique([left, right]).map((index) => makePanel(data.runs[index]));
  find("panels").append(...state.panels.map((panel) => panel.node));
  draw();
})();
