"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const range = (n) => [...Array(n).keys()];
  const TOP = 30, FEW = 8, SIDE = 12, MATCHES = 8, TRAIL = 8;
  const SHARP = 0.98, APART = 3;  // log scale if a weight exceeds SHARP, or if the rows' maxima differ by more than this factor
  const SMALL = 0.05;  // if all weights are smaller, the heat map shows thousandths

  // Embedded arrays: little-endian numbers in base64.
  function numbers(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Kind(bytes.buffer);
  }
  const nodes = { set: numbers(data.node.set, Uint8Array), id: numbers(data.node.id, Uint32Array) };
  const edgeSets = data.edgeSets.map((edgeSet) => ({
    ...edgeSet,
    query: numbers(edgeSet.query, Uint32Array),
    call: edgeSet.call === null ? null : numbers(edgeSet.call, Uint32Array),
    degree: numbers(edgeSet.degree, Uint32Array),
    start: numbers(edgeSet.start, Uint32Array),
    key: numbers(edgeSet.key, Uint32Array),
    weights: edgeSet.weights.map((text) => numbers(text, Uint16Array)),
  }));
  const edgeSetOf = [], weightsOf = [];  // by layer
  for (const edgeSet of edgeSets) {
    edgeSet.layers.forEach((layer, index) => { edgeSetOf[layer] = edgeSet; weightsOf[layer] = edgeSet.weights[index]; });
    edgeSet.rowsOf = new Map();  // node -> its rows, one per call
    edgeSet.query.forEach((node, row) => {
      if (edgeSet.rowsOf.has(node)) edgeSet.rowsOf.get(node).push(row);
      else edgeSet.rowsOf.set(node, [row]);
    });
  }
  const headsOf = (layer) => data.layers[layer].verdicts.length;
  const callOf = (edgeSet, row) => (edgeSet.call === null ? 0 : edgeSet.call[row]);
  function weightAt(layer, edge, head) {
    const step = weightsOf[layer][edge * headsOf(layer) + head];
    return step === 65535 ? 0 : Math.exp(-step / data.logSteps);
  }
  function edgesOf(edgeSet, row) { return range(edgeSet.start[row + 1] - edgeSet.start[row]).map((offset) => edgeSet.start[row] + offset); }

  const short = (node) => (data.names ? data.names[node] : String(nodes.id[node]));
  const long = (node) => (data.names ? `${data.names[node]} (${data.sets[nodes.set[node]]} ${nodes.id[node]})`
    : `${data.sets[nodes.set[node]]} ${nodes.id[node]}`);
  const plain = (weight) => (weight >= 0.01 || weight === 0 ? weight.toFixed(3) : weight >= 1e-4 ? weight.toPrecision(2) : weight.toExponential(0));
  const brief = (number) => (number >= 9.95 ? number.toFixed(0) : number >= 0.995 ? number.toFixed(1) : number >= 0.0995 ? number.toFixed(2) : number >= 0.001 ? number.toFixed(3) : number.toExponential(0)).replace(/^0(?=\.)/, "");
  const commas = (number) => number.toLocaleString("en");

  const SVG = new Set(["polyline", "line", "path"]);
  function element(name, attributes = {}, ...children) {
    const node = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }
  function fill(select, options, chosen) {
    select.replaceChildren(...options.map(([value, label]) => {
      const option = element("option", { value }, label);
      option.selected = String(value) === String(chosen);
      return option;
    }));
    select.disabled = options.length < 2;
  }

  const state = { layer: 0, head: 0, block: "0", scale: null, marked: null, around: null, trail: [], call: 0, isLong: false, isOpen: false };

  // The gauge: the panel shows the numbers of the hovered or focused head, otherwise of the selected one.
  const narrow = matchMedia("(max-width: 56rem)");
  function showNumbers(layer, head) {
    const panel = find("panel");
    const template = document.querySelector(`template[data-layer="${layer}"][data-head="${head}"]`);
    panel.replaceChildren(template.content.cloneNode(true));
  }
  function placePanel() {
    const home = document.querySelector(".gauge");
    const button = document.querySelector(`.head[data-layer="${state.layer}"][data-head="${state.head}"]`);
    find("panel").hidden = narrow.matches && !state.isOpen;
    if (narrow.matches) button.after(find("panel"));
    else home.append(find("panel"));
  }
  function pickHead(layer, head) {
    Object.assign(state, { layer, head, marked: state.layer === layer || edgeSetOf[state.layer] === edgeSetOf[layer] ? state.marked : null });
    for (const button of all(".head")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.layer) === layer && Number(button.dataset.head) === head));
    }
    showNumbers(layer, head);
    placePanel();
    drawBlock();
    drawNode();
  }
  function listenToGauge() {
    for (const button of all(".head")) {
      const [layer, head] = [Number(button.dataset.layer), Number(button.dataset.head)];
      button.addEventListener("click", () => {
        state.isOpen = !(state.isOpen && state.layer === layer && state.head === head);  // on narrow screens, where the panel is below the head
        pickHead(layer, head);
      });
      const preview = () => { if (!narrow.matches) showNumbers(layer, head); };
      button.addEventListener("focus", preview);
      button.addEventListener("pointerenter", preview);
    }
    document.querySelector(".scales").addEventListener("pointerleave", () => showNumbers(state.layer, state.head));
    narrow.addEventListener("change", placePanel);
  }

  // A block: some rows of the layer's edge set, with keys as columns.
  function blockNow() {
    const edgeSet = edgeSetOf[state.layer];
    if (state.block === "around" && state.around && state.around.edgeSet === edgeSet) return state.around;
    return edgeSet.blocks[Number(state.block)] || edgeSet.blocks[0] || null;
  }

  // A row, and the queries of the same call that share most of its strongest keys.
  function blockAround(edgeSet, row) {
    const keys = edgesOf(edgeSet, row).slice(0, SIDE).map((edge) => edgeSet.key[edge]);
    const wanted = new Set(keys);
    const shared = range(edgeSet.query.length).filter((other) => other !== row && callOf(edgeSet, other) === callOf(edgeSet, row))
      .map((other) => [edgesOf(edgeSet, other).filter((edge) => wanted.has(edgeSet.key[edge])).length, other])
      .filter(([count]) => count >= 2).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    return { edgeSet, rows: [row, ...shared.slice(0, SIDE - 1).map(([, other]) => other)], keys, orders: null };
  }

  // cells[row][key]: a weight; null without an edge; undefined if it is unknown because not all edges are embedded.
  function cellsOf(block, layer, head) {
    const edgeSet = edgeSetOf[layer];
    return block.rows.map((row) => {
      const at = new Map(edgesOf(edgeSet, row).map((edge) => [edgeSet.key[edge], edge]));
      const isSure = block !== state.around || at.size === edgeSet.degree[row];  // precomputed blocks have all their edges
      return block.keys.map((key) => (at.has(key) ? weightAt(layer, at.get(key), head) : isSure ? null : undefined));
    });
  }

  // Columns in the order of the head's one ranking or, without it, in the order with the fewest contradictions.
  function orderOf(block, layer, head, cells) {
    const given = block.orders && block.orders[edgeSetOf[layer].layers.indexOf(layer)];
    if (given) return given[head];
    const wins = range(block.keys.length).map((a) => range(block.keys.length).map((b) =>
      cells.filter((row) => row[a] > row[b]).length - cells.filter((row) => row[a] < row[b]).length));
    const order = [];
    const gain = (list) => list.reduce((sum, a, i) => list.slice(i + 1).reduce((inner, b) => inner + wins[a][b], sum), 0);
    const insert = (list, key) => range(list.length + 1).map((at) => [...list.slice(0, at), key, ...list.slice(at)])
      .reduce((best, each) => (gain(each) > gain(best) ? each : best));
    let best = range(block.keys.length).reduce(insert, order);
    for (let round = 0; round < 4; round++) for (const key of block.keys.keys()) best = insert(best.filter((each) => each !== key), key);
    return best;
  }

  function contradictions(cells) {
    let against = 0, compared = 0;
    for (const row of cells) {
      range(row.length).forEach((a) => range(a).forEach((b) => {
        if (row[a] == null || row[b] == null || row[a] === row[b]) return;
        compared += 1;
        against += row[a] > row[b];
      }));
    }
    return [against, compared];
  }

  function drawBlock() {
    const heads = data.layers.flatMap((layer, at) => layer.verdicts.map((verdict, head) => [`${at}/${head}`, `${layer.name}, head ${head}: ${verdict.words}`]));
    for (const select of all(".pick-head")) fill(select, heads, `${state.layer}/${state.head}`);
    const edgeSet = edgeSetOf[state.layer];
    const given = edgeSet.blocks.map((block, at) => [String(at), `${block.rows.length} queries that share keys${edgeSet.blocks.length > 1 ? `, set ${at + 1}` : ""}`]);
    const around = state.around && state.around.edgeSet === edgeSet ? [["around", `around ${short(edgeSet.query[state.around.rows[0]])}`]] : [];
    const block = blockNow();
    if (state.block === "around" && !around.length || !edgeSet.blocks[Number(state.block)] && state.block !== "around") state.block = "0";
    fill(find("pick-block"), [...given, ...around], state.block);
    if (!block) {
      find("block-words").textContent = "This page contains no queries of this layer that share keys.";
      for (const id of ["heat", "lines", "levels"]) find(id).replaceChildren();
      find("block-note").textContent = "";
      return;
    }
    const unordered = cellsOf(block, state.layer, state.head);
    const order = orderOf(block, state.layer, state.head, unordered);
    const cells = unordered.map((row) => order.map((key) => row[key]));
    const keys = order.map((at) => block.keys[at]);
    describeBlock(block, cells);
    drawHeat(edgeSet, block, keys, cells);
    drawLines(cells);
    mark();
  }

  function describeBlock(block, cells) {
    const [against, compared] = contradictions(cells);
    const verdict = data.layers[state.layer].verdicts[state.head];
    const share = compared ? Math.round(100 * against / compared) : 0;
    const words = !against ? `all ${commas(compared)} comparisons within these rows agree with the head's one ranking.`
      : `${commas(against)} of ${commas(compared)} comparisons within these rows (${share || "under 1"} %) contradict the head's one ranking.`;
    find("block-words").replaceChildren(element("b", { class: verdict.css }, verdict.words[0].toUpperCase() + verdict.words.slice(1)), `: ${words}`);
    const edgeSet = edgeSetOf[state.layer];
    const call = data.calls > 1 ? ` All rows are from call ${callOf(edgeSet, block.rows[0])}.` : "";
    const cut = cells.some((row) => row.includes(undefined)) ? " Hatched cells may have an edge that this page does not contain." : "";
    const order = block.orders && block.orders[0] ? "" : " The ranking is computed from these rows only.";
    find("block-note").textContent = `Cells show ${maxOf(cells) < SMALL ? "weights in thousandths" : "weights"}; empty cells have no edge.${cut}${order}${call} Click a row to highlight its line; click it again to show all.`;
  }

  const maxOf = (cells) => Math.max(...cells.flat().filter((weight) => weight != null), 1e-9);
  function drawHeat(edgeSet, block, keys, cells) {
    const table = find("heat");
    const max = maxOf(cells);
    const times = max < SMALL ? 1000 : 1;
    const labels = keys.map(short);
    table.parentElement.style.setProperty("--columns", keys.length);
    table.classList.toggle("long", labels.some((label) => label.length > 5));
    const head = element("tr", {}, element("td", {}, "queries ↓ keys →"),
      ...keys.map((key, at) => element("th", { scope: "col", title: long(key) }, element("span", {}, labels[at]))));
    const body = block.rows.map((row, place) => {
      const node = edgeSet.query[row];
      const dot = element("i");
      dot.style.setProperty("--line", data.colours[place % data.colours.length]);
      const button = element("button", { type: "button", class: "row", "aria-pressed": "false", title: long(node), "aria-label": `query ${long(node)}` }, dot, element("span", {}, short(node)));
      const top = Math.max(...cells[place].filter((weight) => weight != null));
      const tds = cells[place].map((weight, at) => {
        if (weight == null) return element("td", { class: weight === null ? "none" : "cut" });
        const depth = Math.sqrt(weight / max) * 0.95;
        const cell = element("td", { title: `${short(node)} → ${short(keys[at])}: ${plain(weight)}` }, brief(times * weight));
        cell.style.setProperty("--depth", depth.toFixed(3));
        cell.classList.toggle("deep", depth > 0.62);
        cell.classList.toggle("top", weight === top);
        return cell;
      });
      return element("tr", { "data-row": place }, element("th", { scope: "row" }, button), ...tds);
    });
    table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  }

  // Ranks are negated, so that the first is at the top.
  function heights(cells, scale) {
    if (scale === "rank") return cells.map((row) => row.map((weight) => (weight == null ? null : -row.filter((other) => other > weight).length)));
    if (scale === "log") return cells.map((row) => row.map((weight) => (weight == null ? null : Math.log10(Math.max(weight, 1e-7)))));
    return cells.map((row) => row.map((weight) => (weight == null ? null : weight)));
  }
  function levelsOf(low, high, scale) {
    if (scale === "rank") return [[0, "first"], [low, "last"]];
    const show = (value) => (value === 0 ? "0" : value < 1e-4 ? value.toExponential(0) : String(Number(value.toPrecision(2))).replace(/^0\./, "."));
    if (scale === "weight") return [low, (low + high) / 2, high].map((value) => [value, show(value)]);
    const powers = range(8).map((at) => 10 ** -at);
    const round = (high - low > 2 ? [1] : [1, 2, 5]).flatMap((digit) => powers.map((power) => Math.log10(digit * power)));
    const inside = round.filter((value) => value >= low && value <= high);
    return (inside.length > 1 ? inside : [low, high]).map((value) => [value, show(10 ** value)]);
  }
  function drawLines(cells) {
    const tops = cells.map((row) => Math.max(...row.filter((weight) => weight != null)));
    const isSharp = Math.max(...tops) > SHARP || Math.max(...tops) > APART * Math.min(...tops);
    const scale = state.scale || (isSharp ? "log" : "weight");
    find("pick-scale").value = scale;
    const tall = heights(cells, scale);
    const there = tall.flat().filter((value) => value !== null);
    const high = Math.max(...there);
    const low = scale === "weight" ? 0 : Math.min(...there);
    const y = (value) => (high > low ? 96 - 92 * (value - low) / (high - low) : 50);
    const x = (at) => 10 * at + 5;
    const svg = find("lines");
    svg.setAttribute("viewBox", `0 0 ${10 * cells[0].length} 100`);
    svg.setAttribute("aria-label", `${cells.length} lines, one per query, over the keys of the heat map: ${scale === "rank" ? "ranks" : "weights"}`);
    const levels = levelsOf(low, high, scale);
    svg.replaceChildren(...levels.map(([value]) => element("line", { class: "base", x1: 0, x2: 10 * cells[0].length, y1: y(value), y2: y(value) })));
    find("levels").replaceChildren(...levels.map(([value, text]) => {
      const label = element("span", {}, text);
      label.style.top = `${y(value)}%`;
      return label;
    }));
    tall.forEach((row, place) => drawLine(svg, row, place, x, y));
  }
  // Solid between adjacent columns with edges, dotted across columns without.
  function drawLine(svg, row, place, x, y) {
    const stroke = data.colours[place % data.colours.length];
    const there = range(row.length).filter((at) => row[at] !== null);
    const point = (at) => `${x(at)},${y(row[at]).toFixed(2)}`;
    const runs = [];
    there.forEach((at, turn) => {
      if (turn && there[turn - 1] === at - 1) runs[runs.length - 1].push(at);
      else runs.push([at]);
    });
    const lines = runs.map((run) => element("polyline", { points: run.map(point).join(" "), stroke, "data-row": place }));
    const gaps = runs.slice(1).map((run, turn) => element("polyline", { class: "gap", points: `${point(runs[turn].at(-1))} ${point(run[0])}`, stroke, "data-row": place }));
    const dots = element("path", { d: there.map((at) => `M${point(at)}h0`).join(""), stroke, "data-row": place });
    svg.append(...gaps, ...lines, dots);
  }

  function mark() {
    const isMarked = state.marked !== null;
    document.querySelector("#heat tbody").classList.toggle("marked", isMarked);
    find("lines").classList.toggle("marked", isMarked);
    for (const row of all("#heat tbody tr")) {
      const isChosen = Number(row.dataset.row) === state.marked;
      row.setAttribute("aria-current", String(isChosen));
      row.querySelector("button").setAttribute("aria-pressed", String(isChosen));
    }
    for (const part of all("#lines [data-row]")) part.classList.toggle("chosen", Number(part.dataset.row) === state.marked);
    find("lines").append(...all("#lines .chosen"));  // drawn on top
  }
  function listenToBlock() {
    for (const select of all(".pick-head")) select.addEventListener("change", () => pickHead(...select.value.split("/").map(Number)));
    find("pick-block").addEventListener("change", (event) => { Object.assign(state, { block: event.target.value, marked: null }); drawBlock(); });
    find("pick-scale").addEventListener("change", (event) => { state.scale = event.target.value; drawBlock(); });
    find("heat").addEventListener("click", (event) => {
      const row = event.target.closest("tbody tr");
      if (!row) return;
      state.marked = state.marked === Number(row.dataset.row) ? null : Number(row.dataset.row);
      mark();
    });
    find("heat").addEventListener("keydown", (event) => {
      const buttons = all("#heat .row");
      const next = buttons[buttons.indexOf(event.target) + ({ ArrowDown: 1, ArrowUp: -1 }[event.key] || NaN)];
      if (next) { event.preventDefault(); next.focus(); }
    });
  }

  // The explorer. A node may be a query in only some layers and calls.
  const isQuery = new Set(edgeSets.flatMap((edgeSet) => [...edgeSet.rowsOf.keys()]));
  const here = () => state.trail.at(-1);
  function rowIn(edgeSet, node, call) {
    const rows = edgeSet.rowsOf.get(node) || [];
    return rows.find((row) => callOf(edgeSet, row) === call) ?? rows[0];
  }

  function why(node) {
    if (node === here()) return "This is the current node.";
    const isKeyOnly = !edgeSets.some((edgeSet) => edgeSet.query.length && nodes.set[edgeSet.query[0]] === nodes.set[node]);
    if (isKeyOnly || data.queries === data.allQueries) return `${long(node)} is never a query, so it has no keys to show.`;
    return `${long(node)} is not among the ${commas(data.queries)} queries in this page.`;
  }
  function walk(node) {
    if (node === here() || !isQuery.has(node)) { find("message").textContent = why(node); return; }
    const row = rowIn(edgeSetOf[state.layer], here(), state.call);
    if (row !== undefined) state.call = callOf(edgeSetOf[state.layer], row);
    state.trail.push(node);
    drawNode();
    find("node-title").focus({ preventScroll: true });
  }
  function goBack(steps = 1) {
    state.trail.splice(Math.max(1, state.trail.length - steps));
    drawNode();
  }

  function drawNode() {
    const node = here(), { layer } = state, edgeSet = edgeSetOf[layer];
    fill(find("pick-layer"), data.layers.map((each, at) => [at, each.name]), layer);
    find("back").disabled = state.trail.length < 2;
    find("message").textContent = "";
    drawTrail();
    find("node-title").textContent = long(node);
    const rows = edgeSet.rowsOf.get(node) || [];
    find("call-label").hidden = rows.length < 2;
    const row = rowIn(edgeSet, node, state.call);
    for (const id of ["more", "compare"]) find(id).hidden = row === undefined;
    if (row === undefined) {
      const others = data.layers.filter((_, at) => edgeSetOf[at].rowsOf.has(node)).map((each) => each.name);
      find("node-words").textContent = `This node is not a query in ${data.layers[layer].name}, only in ${others.join(", ")}.`;
      find("neighbours").replaceChildren();
      return;
    }
    fill(find("pick-call"), rows.map((each) => [callOf(edgeSet, each), `${callOf(edgeSet, each)}`]), callOf(edgeSet, row));
    drawNeighbours(edgeSet, row);
  }

  function drawTrail() {
    const start = Math.max(0, state.trail.length - 1 - TRAIL);
    const visited = state.trail.slice(start, -1).map((node, at) => {
      const button = element("button", { type: "button", class: "to" }, short(node));
      button.addEventListener("click", () => goBack(state.trail.length - 1 - start - at));
      return button;
    });
    find("trail").replaceChildren(...(start ? ["… → "] : []), ...visited.flatMap((button) => [button, element("span", {}, "→")]), ...(visited.length ? [element("span", {}, short(here()))] : []));
  }

  function drawNeighbours(edgeSet, row) {
    const { layer } = state, node = here();
    const edges = edgesOf(edgeSet, row), degree = edgeSet.degree[row];
    const shown = state.isLong || headsOf(layer) < 3 ? TOP : FEW;
    const table = edges.map((edge) => range(headsOf(layer)).map((head) => weightAt(layer, edge, head)));
    const max = Math.max(...table.flat(), 1 / degree);
    const rest = degree > edges.length ? `, of which this page contains the ${edges.length} strongest` : "";
    const call = data.calls > 1 ? ` in call ${callOf(edgeSet, row)}` : "";
    const canWalk = edges.some((edge) => edgeSet.key[edge] !== node && isQuery.has(edgeSet.key[edge]));
    find("node-words").textContent = `Attends to ${commas(degree)} ${degree === 1 ? "key" : "keys"} in ${data.layers[layer].name}${call}${rest}. The vertical line marks the uniform weight, 1/${commas(degree)}. ${canWalk ? "Click a blue key to go to it." : "None of the keys is a query in this page."}`;
    find("neighbours").replaceChildren(...range(headsOf(layer)).map((head) => {
      const verdict = data.layers[layer].verdicts[head];
      const order = range(edges.length).sort((a, b) => table[b][head] - table[a][head] || a - b).slice(0, shown);
      const items = order.map((at) => element("li", {}, bar(edgeSet.key[edges[at]], table[at][head], max, degree, node)));
      return element("div", { class: `${verdict.css}${head === state.head ? " chosen" : ""}` },
        element("h4", {}, element("b", {}, `head ${head}`), element("span", {}, verdict.words)), element("ol", { class: "bars" }, ...items));
    }));
    find("more").hidden = headsOf(layer) < 3 || edges.length <= FEW;
    find("more").textContent = state.isLong ? `Show ${FEW} keys per head` : `Show ${Math.min(TOP, edges.length)} keys per head`;
    find("compare").hidden = edges.length < 2;
  }
  function bar(key, weight, max, degree, node) {
    const length = element("i"), uniform = element("u");
    length.style.width = `${100 * weight / max}%`;
    uniform.style.left = `${100 / degree / max}%`;
    const isOwn = key === node, isOutside = !isOwn && !isQuery.has(key);
    const note = isOwn ? ", itself" : isOutside ? ", not a query in this page" : "";
    const button = element("button", { type: "button", class: `to${isOutside || isOwn ? " outside" : ""}`, "data-id": nodes.id[key], title: isOutside ? why(key) : long(key), "aria-label": `${long(key)}, weight ${plain(weight)}${note}` },
      element("span", {}, isOwn ? `${short(key)} (itself)` : short(key)), element("span", { class: "bar" }, length, uniform), element("span", {}, plain(weight)));
    button.addEventListener("click", () => walk(key));
    return button;
  }

  // Search: exact ids and names first, then prefixes, then substrings.
  const queries = [...isQuery].sort((a, b) => a - b);
  function matches(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return [];
    const scored = queries.map((node) => {
      const id = String(nodes.id[node]), name = short(node).toLowerCase();
      const score = id === wanted || name === wanted || long(node).toLowerCase() === wanted ? 0 : name.startsWith(wanted) ? 1 : id.startsWith(wanted) ? 2 : name.includes(wanted) ? 3 : 4;
      return [score, node];
    });
    return scored.filter(([score]) => score < 4).sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, MATCHES).map(([, node]) => node);
  }
  let offered = [], place = -1;
  function offer() {
    offered = matches(find("node").value);
    place = -1;
    find("matches").replaceChildren(...offered.map((node, at) => {
      const item = element("li", { role: "option", id: `match-${at}`, "aria-selected": "false" }, long(node));
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); choose(node); });
      return item;
    }));
    showOffer(offered.length > 0);
  }
  function showOffer(isShown) {
    find("matches").hidden = !isShown;
    find("node").setAttribute("aria-expanded", String(isShown));
  }
  function move(step) {
    place = (place + step + offered.length) % offered.length;
    [...find("matches").children].forEach((item, at) => item.setAttribute("aria-selected", String(at === place)));
    find("node").setAttribute("aria-activedescendant", `match-${place}`);
  }
  function choose(node) {
    find("node").value = "";
    find("node").removeAttribute("aria-activedescendant");
    showOffer(false);
    if (node === here()) drawNode();
    else walk(node);
  }
  function listenToExplorer() {
    find("node").addEventListener("input", offer);
    find("node").addEventListener("blur", () => showOffer(false));
    find("node").addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && offered.length) { event.preventDefault(); move(step); }
      if (event.key === "Escape") showOffer(false);
    });
    find("search").addEventListener("submit", (event) => {
      event.preventDefault();
      const text = find("node").value.trim();
      const node = place >= 0 ? offered[place] : matches(text)[0];
      if (node !== undefined) choose(node);
      else if (text) find("message").textContent = `No match for “${text}” among the ${commas(data.queries)} of ${commas(data.allQueries)} queries in this page.`;
    });
    find("back").addEventListener("click", () => goBack());
    find("pick-layer").addEventListener("change", (event) => {
      const layer = Number(event.target.value);
      pickHead(layer, Math.min(state.head, headsOf(layer) - 1));
    });
    find("pick-call").addEventListener("change", (event) => { state.call = Number(event.target.value); drawNode(); });
    find("more").addEventListener("click", () => { state.isLong = !state.isLong; drawNode(); });
    find("compare").addEventListener("click", () => {
      const edgeSet = edgeSetOf[state.layer];
      state.around = blockAround(edgeSet, rowIn(edgeSet, here(), state.call));
      Object.assign(state, { block: "around", marked: 0 });
      drawBlock();
      find("block").scrollIntoView({ block: "start" });
      find("pick-block").focus({ preventScroll: true });
    });
  }

  find("neighbours").classList.toggle("named", data.names !== null);

  // Start at the first query of the first block.
  const first = edgeSets.find((edgeSet) => edgeSet.blocks.length) || edgeSets.find((edgeSet) => edgeSet.query.length);
  state.trail = [first.query[first.blocks.length ? first.blocks[0].rows[0] : 0]];
  state.call = callOf(first, first.blocks.length ? first.blocks[0].rows[0] : 0);
  listenToGauge();
  listenToBlock();
  listenToExplorer();
  pickHead(first.layers[0], 0);
})();
