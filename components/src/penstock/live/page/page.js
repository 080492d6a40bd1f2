"use strict";
// Places the texts of the server, and changes only what differs: 80 processes change 10 times a second.
window.penstock = (() => {
  const chartIds = CHART_IDS;
  const byId = (id) => document.getElementById(id);
  const view = { rows: {} };
  const points = [];
  const cells = new Map();

  const setText = (node, text) => {
    const old = node.firstChild;
    if (old && !old.nextSibling && old.nodeType === Node.TEXT_NODE) {
      if (old.nodeValue !== text) old.nodeValue = text;  // cheaper than another node
    } else {
      node.textContent = text;
    }
  };
  const make = (name, text, className) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  };

  function showTable(message) {
    if (message.columns) {
      byId("workers").querySelector("thead tr").replaceChildren(...message.columns.map(([title, isNumber]) => {
        const heading = make("th", title, isNumber ? "number" : "");
        heading.scope = "col";
        heading.setAttribute("role", "columnheader");
        return heading;
      }));
      const wide = message.columns.map(([, isNumber]) => (isNumber ? "minmax(60px, 1fr)" : "minmax(154px, 1.4fr)"));
      byId("workers").style.setProperty("--columns", wide.join(" "));
    }
    if (message.order) {
      for (const key of cells.keys()) if (!message.order.includes(key)) cells.delete(key);
      byId("workers").tBodies[0].replaceChildren(...message.order.map((key) => {
        if (!cells.has(key)) cells.set(key, makeRow());
        return cells.get(key)[0].parentNode;
      }));
    }
    fillRows(Boolean(message.order));
    for (const [key, state] of Object.entries(message.states || {})) {
      if (cells.has(key)) cells.get(key)[1].className = state.replace(" ", "-");
    }
  }

  // The rows in sight at each update, the others once per second: text takes long to lay out.
  const ROW_HEIGHT = 25;
  let scrolledTo = 0;
  let filledAt = 0;
  function fillRows(areNew) {
    const all = areNew || Date.now() - filledAt >= 1000;
    if (all) filledAt = Date.now();
    const from = all ? 0 : Math.max(0, Math.floor(scrolledTo / ROW_HEIGHT) - 2);
    const to = all ? Infinity : from + Math.ceil(420 / ROW_HEIGHT) + 4;
    view.order.slice(from, to).forEach((key) => {
      view.rows[key].forEach((text, i) => setText(cells.get(key)[i], text));
    });
  }

  function makeRow() {
    const row = make("tr");
    row.setAttribute("role", "row");
    const nodes = view.columns.map(([, isNumber], i) => {
      const node = make(i ? "td" : "th", "", isNumber ? "number" : "");
      if (!i) node.scope = "row";
      node.setAttribute("role", i ? "cell" : "rowheader");
      row.append(node);
      return node;
    });
    return nodes;
  }

  function svg(name, attributes, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // Columns: clients, frontends, router, first pools, decode pools behind a KV transfer.
  function places() {
    const behind = new Set(view.edges.filter((edge) => edge[3]).map((edge) => edge[1]));
    const names = view.components.map((one) => one[0]);
    const front = names.filter((_, i) => view.components[i][1] === "frontend");
    const pools = names.filter((name) => !front.includes(name));
    const columns = [["clients"], front, ["router"],
      pools.filter((name) => !behind.has(name)), pools.filter((name) => behind.has(name))];
    const found = {};
    columns.filter((one) => one.length).forEach((column, x) => column.forEach((name, y) => {
      found[name] = [90 + x * 250, 60 + y * 80];
    }));
    return found;
  }

  function drawTopology() {
    const at = places();
    const counts = Object.fromEntries(view.components.map(([name, , ready, desired]) => [name, `${ready}/${desired}`]));
    const nodes = [];
    const labels = [];
    for (const [source, target, label, isTransfer] of view.edges) {
      const [from, to] = [at[source], at[target]];
      if (!from || !to) continue;
      const skips = to[0] - from[0] > 260;
      const [y1, y2] = skips ? [from[1] + 22, to[1] + 22] : [from[1], to[1]];
      const path = skips
        ? svg("path", { d: `M${from[0]} ${y1} Q${(from[0] + to[0]) / 2} ${y1 + 70} ${to[0]} ${y2}`, fill: "none", stroke: "var(--flow)" })
        : svg("line", { x1: from[0] + 65, y1, x2: to[0] - 65, y2, class: isTransfer ? "kv" : "" });
      const text = svg("text", { x: (from[0] + to[0]) / 2, y: (y1 + y2) / 2 + (skips ? 27 : -8) }, label);
      labels.push(text);
      nodes.push(path, text);
    }
    for (const [name, [x, y]] of Object.entries(at)) {
      nodes.push(svg("rect", { x: x - 65, y: y - 22, width: 130, height: 44, rx: 6 }));
      nodes.push(svg("text", { x, y: y + 5 }, counts[name] ? `${name} ${counts[name]}` : name));
    }
    const xs = Object.values(at).map(([x]) => x);
    const ys = Object.values(at).map(([, y]) => y);
    const drawing = byId("topology");
    drawing.setAttribute("viewBox", `0 0 ${Math.max(...xs, 0) + 90} ${Math.max(...ys, 0) + 75}`);
    drawing.replaceChildren(...nodes);
    penstock.labels = labels;
  }

  function showTopology(message) {
    const shape = JSON.stringify([view.components, view.edges.map(([a, b, , t]) => [a, b, t])]);
    if (shape !== view.shape) {
      view.shape = shape;
      drawTopology();
    } else if (message.edges) {
      penstock.labels.forEach((node, i) => setText(node, view.edges[i][2]));
    }
    const sentence = view.edges.map(([a, b, label]) => `${a} to ${b}: ${label}`).join("; ");
    setText(byId("topology-text"), sentence);
  }

  function showTotals(totals) {
    const list = byId("totals");
    if (list.children.length !== totals.length) {
      list.replaceChildren(...totals.map(([name]) => {
        const group = make("div");
        group.append(make("dt", name), make("dd"));
        return group;
      }));
    }
    totals.forEach(([, text], i) => setText(list.children[i].lastChild, text));
  }

  function showEvents(events) {
    const list = byId("events");
    const key = (event) => event.slice(0, 1).concat(event.slice(2)).join(" ");
    const known = new Set([...list.children].map((node) => node.dataset.key));
    for (const event of events) {
      if (known.has(key(event))) continue;
      const [seconds, clock, kind, subject, text] = event;
      const item = make("li", undefined, kind);
      item.dataset.key = key(event);
      item.dataset.seconds = seconds;
      const time = make("time", clock);
      time.dateTime = new Date(seconds * 1000).toISOString();
      item.append(time, `${kind}: ${subject}: ${text}`);
      list.prepend(item);  // the newest first
    }
    while (list.children.length > 200) list.lastChild.remove();
  }

  function showPools() {
    byId("scaling").hidden = !view.allow_edit || !view.pools.length;
    const names = view.pools.map(([name]) => name).join();
    if (!view.allow_edit || byId("pools").dataset.names === names) return;
    byId("pools").dataset.names = names;
    byId("pools").replaceChildren(...view.pools.map(([name, desired]) => {
      const form = make("form");
      const label = make("label", name);
      const input = make("input");
      Object.assign(input, {
        type: "number", min: 0, required: true, value: desired, id: `replicas-${name}`,
      });
      label.htmlFor = input.id;
      const button = make("button", "Scale");
      button.setAttribute("aria-label", `Scale ${name}`);
      form.append(label, input, button);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        scale(name, Number(input.value));
      });
      return form;
    }));
  }

  const post = (path, body) => fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });

  async function scale(pool, replicas) {
    setText(byId("scaled"), `Scaling ${pool} to ${replicas}…`);
    const response = await post("/api/scale", { pool, replicas });
    const done = await response.json();
    setText(byId("scaled"), response.ok ? `${pool}: ${replicas} replicas` : done.error);
  }

  // The chat of a release needs the URL of its endpoint.
  function showChat(note) {
    if (byId("chat").hidden === Boolean(note)) return;
    byId("chat").hidden = Boolean(note);
    setText(byId("served"), note);
  }

  async function chat(event) {
    event.preventDefault();
    const answer = byId("answer");
    const served = byId("served");
    setText(answer, "");
    setText(served, "Waiting for the first token…");
    penstock.requests.offer("");
    const response = await post("/api/chat", { prompt: byId("prompt").value });
    if (!response.ok) {
      setText(served, (await response.json()).error);
      return;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) showPart(JSON.parse(line), answer, served);
    }
  }

  function showPart(part, answer, served) {
    if (part.text) answer.append(part.text);
    if (part.error) setText(served, part.error);
    if (part.workers) {
      const cached = part.cached ?? "unknown";
      setText(served, `Served by ${part.workers.join(" and ") || "an unknown worker"}; `
        + `${cached} of ${part.prompt} prompt tokens were cached.`);
      penstock.requests.offer(part.id);
    }
  }

  // Drawing takes longer than all other changes, so charts are drawn only while they are visible.
  let sight;
  let areInSight = false;
  function drawCharts() {
    if (!sight) {
      sight = new IntersectionObserver((entries) => {
        areInSight = entries.at(-1).isIntersecting;
        drawCharts();
      });
      sight.observe(document.querySelector(".charts"));
      document.addEventListener("visibilitychange", drawCharts);
    }
    if (!areInSight || document.hidden) return;
    const style = getComputedStyle(document.documentElement);
    const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name));
    const axis = { axisLabel: { color: ink }, splitLine: { lineStyle: { color: line } } };
    [[1, 2], [3, 4]].forEach((series, i) => {
      const chart = getElement(chartIds[i])?.chart;
      chart?.setOption({
        title: { textStyle: { color: ink } }, legend: { textStyle: { color: ink } },
        xAxis: { ...axis, splitLine: { show: false } }, yAxis: axis,
        series: series.map((at) => ({ data: points.map((point) => [point[0], point[at]]) })),
      });
    });
  }

  function update(message) {
    if (message.points) points.splice(0, points.length, ...message.points);
    if (message.point) points.push(message.point);
    if (points.length > POINTS) points.shift();
    const rows = { ...view.rows, ...message.rows };
    if (message.order) {
      for (const key of Object.keys(rows)) if (!message.order.includes(key)) delete rows[key];
    }
    Object.assign(view, message, { rows });
    if (message.title) { setText(byId("title"), message.title); document.title = message.title; }
    if (message.alerts) byId("alerts").replaceChildren(...message.alerts.map((text) => make("li", text)));
    showTable(message);
    if (message.edges || message.components) showTopology(message);
    if (message.totals) showTotals(message.totals);
    if (message.events) showEvents(message.events);
    if (message.pools || "allow_edit" in message) showPools();
    if ("has_requests" in message) penstock.requests.open(message.has_requests);
    if ("chat_note" in message) showChat(message.chat_note);
    if (message.points || message.point) drawCharts();
  }

  // Reading scrollTop at each update would force a layout.
  document.addEventListener("scroll", (event) => {
    if (event.target.classList?.contains("scroll")) scrolledTo = event.target.scrollTop;
  }, { capture: true, passive: true });
  document.addEventListener("submit", (event) => { if (event.target.id === "chat") chat(event); });
  return { update, byId, make, setText, post };
})();
