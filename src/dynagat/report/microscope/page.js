"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const range = (n) => [...Array(n).keys()];
  const TOP = 30, FEW = 8, SIDE = 12, MATCHES = 8, TRAIL = 8;
  const SHARP = 0.98, APART = 3;  // lines show logarithms of larger weights, or where rows' largest differ by more
  const SMALL = 0.05;  // the heat map shows smaller weights in thousandths

  // What is embedded: little-endian numbers in base64.
  function numbers(text, Kind) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Kind(bytes.buffer);
  }
  const nodes = { set: numbers(data.node.set, Uint8Array), id: numbers(data.node.id, Uint32Array) };
  const webs = data.webs.map((web) => ({
    ...web,
    query: numbers(web.query, Uint32Array),
    call: web.call === null ? null : numbers(web.call, Uint32Array),
    degree: numbers(web.degree, Uint32Array),
    start: numbers(web.start, Uint32Array),
    key: numbers(web.key, Uint32Array),
    weights: web.weights.map((text) => numbers(text, Uint16Array)),
  }));
  const webOf = [], weightsOf = [];  // by layer
  for (const web of webs) {
    web.layers.forEach((layer, place) => { webOf[layer] = web; weightsOf[layer] = web.weights[place]; });
    web.rowsOf = new Map();  // node -> rows, one per call
    web.query.forEach((node, row) => {
      if (web.rowsOf.has(node)) web.rowsOf.get(node).push(row);
      else web.rowsOf.set(node, [row]);
    });
  }
  const headsOf = (layer) => data.layers[layer].verdicts.length;
  const callOf = (web, row) => (web.call === null ? 0 : web.call[row]);
  function weightAt(layer, edge, head) {
    const step = weightsOf[layer][edge * headsOf(layer) + head];
    return step === 65535 ? 0 : Math.exp(-step / data.fineness);
  }
  function edgesOf(web, row) { return range(web.start[row + 1] - web.start[row]).map((turn) => web.start[row] + turn); }

  const short = (node) => (data.names ? data.names[node] : String(nodes.id[node]));
  const long = (node) => (data.names ? `${data.names[node]} (${data.sets[nodes.set[node]]} ${nodes.id[node]})`
    : `${data.sets[nodes.set[node]]} ${nodes.id[node]}`);
  const css = (word) => word.replace(" ", "-");
  const plain = (weight) => (weight >= 0.01 || weight === 0 ? weight.toFixed(3) : weight >= 1e-4 ? weight.toPrecision(2) : weight.toExponential(0));
  const brief = (number) => (number >= 9.95 ? number.toFixed(0) : number >= 0.995 ? number.toFixed(1) : number >= 0.0995 ? number.toFixed(2) : number >= 0.001 ? number.toFixed(3) : number.toExponential(0)).replace(/^0(?=\.)/, "");
  const commas = (number) => number.toLocaleString("en");

  const SVG = new Set(["polyline", "line", "path"]);
  function element(name, attributes = {}, ...children) {
    const made = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
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

  // The gauge: a head that is looked at has its numbers in the panel, one that is picked keeps them.
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
    Object.assign(state, { layer, head, marked: state.layer === layer || webOf[state.layer] === webOf[layer] ? state.marked : null });
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
        state.isOpen = !(state.isOpen && state.layer === layer && state.head === head);  // where it is below the head
        pickHead(layer, head);
      });
      const look = () => { if (!narrow.matches) showNumbers(layer, head); };
      button.addEventListener("focus", look);
      button.addEventListener("pointerenter", look);
    }
    document.querySelector(".scales").addEventListener("pointerleave", () => showNumbers(state.layer, state.head));
    narrow.addEventListener("change", placePanel);
  }

  // A block: rows of the layer's web, and keys as columns.
  function blockNow() {
    const web = webOf[state.layer];
    if (state.block === "around" && state.around && state.around.web === web) return state.around;
    return web.blocks[Number(state.block)] || web.blocks[0] || null;
  }

  // Queries of the same call that have most of one row's strongest keys.
  function blockAround(web, row) {
    const keys = edgesOf(web, row).slice(0, SIDE).map((edge) => web.key[edge]);
    const wanted = new Set(keys);
    const shared = range(web.query.length).filter((other) => other !== row && callOf(web, other) === callOf(web, row))
      .map((other) => [edgesOf(web, other).filter((edge) => wanted.has(web.key[edge])).length, other])
      .filter(([count]) => count >= 2).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    return { web, rows: [row, ...shared.slice(0, SIDE - 1).map(([, other]) => other)], keys, orders: null };
  }

  // cells[row][key]: a weight; null without an edge; undefined if the edge, if any, is not embedded.
  function cellsOf(block, layer, head) {
    const web = webOf[layer];
    return block.rows.map((row) => {
      const at = new Map(edgesOf(web, row).map((edge) => [web.key[edge], edge]));
      const isSure = block !== state.around || at.size === web.degree[row];  // a given block has all its edges
      return block.keys.map((key) => (at.has(key) ? weightAt(layer, at.get(key), head) : isSure ? null : undefined));
    });
  }

  // Columns by the head's one ranking; where the page has none, by the order that contradicts fewest rows.
  function orderOf(block, layer, head, cells) {
    const given = block.orders && block.orders[webOf[layer].layers.indexOf(layer)];
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
    const heads = data.layers.flatMap((layer, at) => layer.verdicts.map((word, head) => [`${at}/${head}`, `${layer.name}, head ${head}: ${word}`]));
    for (const select of all(".pick-head")) fill(select, heads, `${state.layer}/${state.head}`);
    const web = webOf[state.layer];
    const given = web.blocks.map((block, at) => [String(at), `${block.rows.length} queries that share keys${web.blocks.length > 1 ? `, set ${at + 1}` : ""}`]);
    const around = state.around && state.around.web === web ? [["around", `around ${short(web.query[state.around.rows[0]])}`]] : [];
    const block = blockNow();
    if (state.block === "around" && !around.length || !web.blocks[Number(state.block)] && state.block !== "around") state.block = "0";
    fill(find("pick-block"), [...given, ...around], state.block);
    if (!block) {
      find("block-words").textContent = "This page holds no queries of this layer that share keys.";
      for (const id of ["heat", "lines", "levels"]) find(id).replaceChildren();
      find("block-note").textContent = "";
      return;
    }
    const unordered = cellsOf(block, state.layer, state.head);
    const order = orderOf(block, state.layer, state.head, unordered);
    const cells = unordered.map((row) => order.map((key) => row[key]));
    const keys = order.map((at) => block.keys[at]);
    sayBlock(block, cells);
    drawHeat(web, block, keys, cells);
    drawLines(cells);
    mark();
  }

  function sayBlock(block, cells) {
    const [against, compared] = contradictions(cells);
    const word = data.layers[state.layer].verdicts[state.head];
    const share = compared ? Math.round(100 * against / compared) : 0;
    const words = !against ? `every one of ${commas(compared)} comparisons within these rows follows the one ranking.`
      : `${commas(against)} of ${commas(compared)} comparisons within these rows (${share || "under 1"} %) go against the one ranking.`;
    find("block-words").replaceChildren(element("b", { class: css(word) }, word[0].toUpperCase() + word.slice(1)), `: ${words}`);
    const web = webOf[state.layer];
    const call = data.calls > 1 ? ` All are of call ${callOf(web, block.rows[0])}.` : "";
    const cut = cells.some((row) => row.includes(undefined)) ? " Hatched: more keys than the page holds, so there may be an edge." : "";
    const order = block.orders && block.orders[0] ? "" : " Here the ranking is made of these rows alone.";
    find("block-note").textContent = `Numbers are ${mostOf(cells) < SMALL ? "thousandths" : "weights"}; an empty cell has no edge.${cut}${order}${call} Pick a row to mark its line; pick it again for all.`;
  }

  const mostOf = (cells) => Math.max(...cells.flat().filter((weight) => weight != null), 1e-9);
  function drawHeat(web, block, keys, cells) {
    const table = find("heat");
    const most = mostOf(cells);
    const times = most < SMALL ? 1000 : 1;
    const labels = keys.map(short);
    table.parentElement.style.setProperty("--columns", keys.length);
    table.classList.toggle("long", labels.some((label) => label.length > 5));
    const head = element("tr", {}, element("td", {}, "queries ↓ keys →"),
      ...keys.map((key, at) => element("th", { scope: "col", title: long(key) }, element("span", {}, labels[at]))));
    const body = block.rows.map((row, place) => {
      const node = web.query[row];
      const dot = element("i");
      dot.style.setProperty("--line", data.colours[place % data.colours.length]);
      const button = element("button", { type: "button", class: "row", "aria-pressed": "false", title: long(node), "aria-label": `query ${long(node)}` }, dot, element("span", {}, short(node)));
      const top = Math.max(...cells[place].filter((weight) => weight != null));
      const made = cells[place].map((weight, at) => {
        if (weight == null) return element("td", { class: weight === null ? "none" : "cut" });
        const depth = Math.sqrt(weight / most) * 0.95;
        const cell = element("td", { title: `${short(node)} → ${short(keys[at])}: ${plain(weight)}` }, brief(times * weight));
        cell.style.setProperty("--depth", depth.toFixed(3));
        cell.classList.toggle("deep", depth > 0.62);
        cell.classList.toggle("top", weight === top);
        return cell;
      });
      return element("tr", { "data-row": place }, element("th", { scope: "row" }, button), ...made);
    });
    table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  }

  // Ranks run down: the first is at the top.
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
  // Whole where neighbouring columns have edges, dotted across those that have none.
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
    find("lines").append(...all("#lines .chosen"));  // on top
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

  // The explorer. A node may be a query in some layers and calls only.
  const isQuery = new Set(webs.flatMap((web) => [...web.rowsOf.keys()]));
  const here = () => state.trail.at(-1);
  function rowIn(web, node, call) {
    const rows = web.rowsOf.get(node) || [];
    return rows.find((row) => callOf(web, row) === call) ?? rows[0];
  }

  function why(node) {
    if (node === here()) return "That is the node itself.";
    const isKeyOnly = !webs.some((web) => web.query.length && nodes.set[web.query[0]] === nodes.set[node]);
    if (isKeyOnly || data.queries === data.allQueries) return `${long(node)} is never a query here, so it ranks nobody: there is nothing to walk to.`;
    return `${long(node)} is not in the sample of ${commas(data.queries)} that this page holds.`;
  }
  function walk(node) {
    if (node === here() || !isQuery.has(node)) { find("said").textContent = why(node); return; }
    const row = rowIn(webOf[state.layer], here(), state.call);
    if (row !== undefined) state.call = callOf(webOf[state.layer], row);
    state.trail.push(node);
    drawNode();
    find("node-title").focus({ preventScroll: true });
  }
  function goBack(steps = 1) {
    state.trail.splice(Math.max(1, state.trail.length - steps));
    drawNode();
  }

  function drawNode() {
    const node = here(), { layer } = state, web = webOf[layer];
    fill(find("pick-layer"), data.layers.map((each, at) => [at, each.name]), layer);
    find("back").disabled = state.trail.length < 2;
    find("said").textContent = "";
    drawTrail();
    find("node-title").textContent = long(node);
    const rows = web.rowsOf.get(node) || [];
    find("call-label").hidden = rows.length < 2;
    const row = rowIn(web, node, state.call);
    for (const id of ["more", "compare"]) find(id).hidden = row === undefined;
    if (row === undefined) {
      const others = data.layers.filter((_, at) => webOf[at].rowsOf.has(node)).map((each) => each.name);
      find("node-words").textContent = `It is no query of ${data.layers[layer].name}; it is one of ${others.join(", ")}.`;
      find("neighbours").replaceChildren();
      return;
    }
    fill(find("pick-call"), rows.map((each) => [callOf(web, each), `${callOf(web, each)}`]), callOf(web, row));
    drawNeighbours(web, row);
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

  function drawNeighbours(web, row) {
    const { layer } = state, node = here();
    const edges = edgesOf(web, row), degree = web.degree[row];
    const shown = state.isLong || headsOf(layer) < 3 ? TOP : FEW;
    const table = edges.map((edge) => range(headsOf(layer)).map((head) => weightAt(layer, edge, head)));
    const most = Math.max(...table.flat(), 1 / degree);
    const rest = degree > edges.length ? `; the ${edges.length} strongest are embedded` : "";
    const call = data.calls > 1 ? ` in call ${callOf(web, row)}` : "";
    const canWalk = edges.some((edge) => web.key[edge] !== node && isQuery.has(web.key[edge]));
    find("node-words").textContent = `Ranks ${commas(degree)} ${degree === 1 ? "key" : "keys"} in ${data.layers[layer].name}${call}${rest}. The upright stroke is the uniform weight, 1/${commas(degree)}. ${canWalk ? "Pick a blue key to walk to it." : "None of them is a query on this page, so there is nowhere to walk to."}`;
    find("neighbours").replaceChildren(...range(headsOf(layer)).map((head) => {
      const word = data.layers[layer].verdicts[head];
      const order = range(edges.length).sort((a, b) => table[b][head] - table[a][head] || a - b).slice(0, shown);
      const items = order.map((at) => element("li", {}, bar(web.key[edges[at]], table[at][head], most, degree, node)));
      return element("div", { class: `${css(word)}${head === state.head ? " chosen" : ""}` },
        element("h4", {}, element("b", {}, `head ${head}`), element("span", {}, word)), element("ol", { class: "bars" }, ...items));
    }));
    find("more").hidden = headsOf(layer) < 3 || edges.length <= FEW;
    find("more").textContent = state.isLong ? `Show ${FEW} keys per head` : `Show ${Math.min(TOP, edges.length)} keys per head`;
    find("compare").hidden = edges.length < 2;
  }
  function bar(key, weight, most, degree, node) {
    const length = element("i"), even = element("u");
    length.style.width = `${100 * weight / most}%`;
    even.style.left = `${100 / degree / most}%`;
    const isOwn = key === node, isOutside = !isOwn && !isQuery.has(key);
    const note = isOwn ? ", itself" : isOutside ? ", can't be walked to" : "";
    const button = element("button", { type: "button", class: `to${isOutside || isOwn ? " outside" : ""}`, "data-id": nodes.id[key], title: isOutside ? why(key) : long(key), "aria-label": `${long(key)}, weight ${plain(weight)}${note}` },
      element("span", {}, isOwn ? `${short(key)} (itself)` : short(key)), element("span", { class: "bar" }, length, even), element("span", {}, plain(weight)));
    button.addEventListener("click", () => walk(key));
    return button;
  }

  // Search: an exact id or name first, then what begins with the text, then what holds it.
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
      else if (text) find("said").textContent = `No query “${text}” among the ${commas(data.queries)} of ${commas(data.allQueries)} that this page holds.`;
    });
    find("back").addEventListener("click", () => goBack());
    find("pick-layer").addEventListener("change", (event) => {
      const layer = Number(event.target.value);
      pickHead(layer, Math.min(state.head, headsOf(layer) - 1));
    });
    find("pick-call").addEventListener("change", (event) => { state.call = Number(event.target.value); drawNode(); });
    find("more").addEventListener("click", () => { state.isLong = !state.isLong; drawNode(); });
    find("compare").addEventListener("click", () => {
      const web = webOf[state.layer];
      state.around = blockAround(web, rowIn(web, here(), state.call));
      Object.assign(state, { block: "around", marked: 0 });
      drawBlock();
      find("block").scrollIntoView({ block: "start" });
      find("pick-block").focus({ preventScroll: true });
    });
  }

  find("neighbours").classList.toggle("named", data.names !== null);

  // Starts where there is a block, at its first query.
  const first = webs.find((web) => web.blocks.length) || webs.find((web) => web.query.length);
  state.trail = [first.query[first.blocks.length ? first.blocks[0].rows[0] : 0]];
  state.call = callOf(first, first.blocks.length ? first.blocks[0].rows[0] : 0);
  listenToGauge();
  listenToBlock();
  listenToExplorer();
  pickHead(first.layers[0], 0);
})();
