"use strict";
(() => {
  const data = JSON.parse(document.getElementById("programs-data").textContent);
  const find = (id) => document.getElementById(id);
  const state = { program: 0, query: 0, layer: 0, head: 0 };
  const ids = { program: "pick-program", query: "pick-query", layer: "pick-program-layer", head: "pick-program-head" };

  // Text from programs is only ever set as textContent or as an attribute, never as HTML.
  function element(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }
  function fill(name, labels) {
    state[name] = Math.min(state[name], labels.length - 1);
    const select = find(ids[name]);
    select.replaceChildren(...labels.map((label, value) => element("option", { value }, label)));
    select.value = String(state[name]);
    select.disabled = labels.length < 2;
  }
  const visible = (text) => text.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥");
  const short = (text) => { const shown = visible(text); return shown.length > 60 ? `${shown.slice(0, 59)}…` : shown; };
  const digits = (value) => (value >= 0.0005 || value === 0 ? value.toFixed(3) : "< 0.001");

  const isWord = (text) => /^[\p{L}\p{N}_"']/u.test(text);
  const KEYWORDS = new Set("and as assert await def del elif else except for from global if import in is lambda nonlocal not or raise return while with yield".split(" "));
  function isApart(before, text) {
    if (/^[,.)\]}:;]/.test(text) || /[([{.@~]$/.test(before)) return false;
    return !(/^[([]/.test(text) && (isWord(before) || /[)\]]$/.test(before)) && !KEYWORDS.has(before));
  }

  function draw() {
    const program = data.programs[state.program];
    fill("program", data.programs.map((each, at) => `${at + 1}: ${each.name || "without a name"}`));
    fill("query", program.queries.map((each) => each.title));
    fill("layer", data.layers.map((each) => each.name));
    fill("head", Array.from({ length: data.layers[state.layer].heads }, (_, head) => `head ${head}`));
    const keys = program.attention[state.layer][state.query];
    drawText(program, new Map(keys.map((key) => [key.node, key])));
    drawTable(program, keys);
  }
  const edgesOf = (key) => key.edges.map(([kind, weights]) => `${data.layers[state.layer].edges[kind] ?? "edge"} ${digits(weights[state.head])}`).join("; ");

  function drawText(program, keys) {
    const lines = [];
    let before = null;
    for (const [node, text, indent, isAfterGap] of program.words) {
      if (isAfterGap) lines.push(element("div", { class: "gap" }, "⋯"));
      if (isAfterGap || indent !== null) {
        lines.push(element("div", { style: `padding-left:${2 * (indent ?? 0)}ch` }));
        before = null;
      }
      const line = lines.at(-1);
      if (before !== null && isApart(before, text)) line.append(" ");
      line.append(token(program, node, text, keys.get(node)));
      before = text;
    }
    find("listing").replaceChildren(...lines);
    const slot = find("listing").querySelector(".slot");
    if (slot) find("listing").scrollTop = slot.offsetTop - find("listing").clientHeight / 2;
  }
  function token(program, node, text, key) {
    const isSlot = node === program.slot;
    const names = [isSlot ? "slot" : "", key ? `key s${key.shades[state.head]}` : ""].join(" ").trim();
    if (!names) return short(text);
    const title = key ? `${digits(key.weights[state.head])} of the attention, uniform ${digits(key.uniform)}: ${edgesOf(key)}` : "the slot";
    return element("span", { class: names, title }, short(text));
  }

  function drawTable(program, keys) {
    const texts = new Map(program.words.map(([node, text]) => [node, text]));
    const sorted = [...keys].sort((a, b) => b.weights[state.head] - a.weights[state.head]);
    const inText = keys.filter((key) => texts.has(key.node));
    const sum = inText.reduce((total, key) => total + key.weights[state.head], 0);
    find("program-words").textContent = `In head ${state.head} of ${data.layers[state.layer].name}, ${program.queries[state.query].title} attends to ${keys.length} nodes: `
      + `${inText.length} tokens get ${digits(sum)} of its attention, other nodes the rest.`;
    const head = element("thead", {}, element("tr", {}, ...[["node", "word"], ["attention", ""], ["uniform", ""], ["edges", "edges"]].map(([name, css]) => element("th", { scope: "col", class: css }, name))));
    const rows = sorted.map((key) => element("tr", {},
      element("td", { class: "word" }, short(key.node === program.slot ? "the slot" : texts.get(key.node) ?? program.labels[key.node])),
      element("td", { class: `s${key.shades[state.head]} shaded` }, digits(key.weights[state.head])),
      element("td", {}, digits(key.uniform)),
      element("td", { class: "edges" }, edgesOf(key))));
    find("program-keys").replaceChildren(head, element("tbody", {}, ...rows));
  }

  for (const [name, id] of Object.entries(ids)) {
    find(id).addEventListener("change", (event) => { state[name] = Number(event.target.value); draw(); });
  }
  draw();
})();
