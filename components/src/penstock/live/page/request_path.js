
// The panel of one request. IDs come from clients, so every text is placed as text.
penstock.requests = (() => {
  const { byId, make, setText, post } = penstock;
  const RETRIES = 8;  // one per second: a request is recorded about 2 s after it ends
  let asking = 0;
  let listing = 0;
  let answered = "";
  let note = "";

  // The reply; `problem` says why there is none.
  async function ask(body) {
    try {
      const response = await post("/api/requests", body);
      const found = await response.json();
      return response.ok ? found : { problem: found.error };
    } catch (error) {
      return { problem: `The page's server does not reply: ${error.message}` };
    }
  }

  function heading(title, isNumber) {
    const node = make("th", title, isNumber ? "number" : "");
    node.scope = "col";
    return node;
  }

  function row(cells) {
    const node = make("tr");
    node.append(...cells);
    return node;
  }

  async function list() {
    const number = ++listing;
    const found = await ask({ order: byId("order").value });
    if (number !== listing) return;  // the list was asked for again meanwhile
    byId("served-path").hidden = found.is_traced === false || !answered;
    byId("listed").hidden = !found.rows?.length;
    note = found.problem ?? found.note;
    setText(byId("found"), note);
    if (!found.rows) return;
    byId("recorded").tHead.replaceChildren(row(found.headings.map((one) => heading(...one))));
    byId("recorded").tBodies[0].replaceChildren(...found.rows.map((texts) => {
      const first = make("th");
      first.scope = "row";
      const button = make("button", texts[0]);
      button.type = "button";
      button.addEventListener("click", () => show(texts[0], 0));
      first.append(button);
      return row([first, ...texts.slice(1).map((text, i) => make("td", text, found.headings[i + 1][1] ? "number" : ""))]);
    }));
    mark();
  }

  function mark() {
    for (const button of byId("recorded").querySelectorAll("button")) {
      button.setAttribute("aria-current", String(button.textContent === byId("path").dataset.id));
    }
  }

  // The trace of a request that has just ended is not there yet: retry.
  async function show(id, retries) {
    const number = ++asking;
    for (let left = retries; ; left--) {
      const found = await ask({ id });
      if (number !== asking) return;  // another request was selected meanwhile
      if (found.path) {
        draw(found.path);
        setText(byId("found"), note);
        if (retries) list();
        return;
      }
      const waits = found.is_unknown && left > 0;
      setText(byId("found"), waits ? "Waiting until the request is recorded…" : found.problem);
      if (!waits) return;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  function draw(path) {
    byId("path").dataset.id = path.id;
    byId("path").hidden = false;
    setText(byId("path-title"), path.title);
    byId("path-summary").replaceChildren(...path.summary.map((text) => make("li", text)));
    byId("path-steps").replaceChildren(...path.steps.map(([process, why]) => {
      const item = make("li", process);
      if (why) item.append(make("span", why, "why"));
      return item;
    }));
    drawStages(path);
    byId("verdict").replaceChildren(...path.verdict.map(([label, text]) => {
      const group = make("div");
      group.append(make("dt", label), make("dd", text));
      return group;
    }));
    byId("path-notes").replaceChildren(...path.notes.map((text) => make("li", text)));
    mark();
    byId("path-title").focus();
  }

  function drawStages(path) {
    const usual = path.has_usual ? [heading("usual", true)] : [];
    const mark = path.has_usual ? "slow" : "longest";
    byId("stages").tHead.replaceChildren(row(
      [heading("stage"), heading("time", true), ...usual, heading("from start to end of the request")],
    ));
    byId("stages").tBodies[0].replaceChildren(...path.stages.map((stage) => {
      const name = make("th", stage.is_slow ? `${stage.name} (${mark})` : stage.name);
      name.scope = "row";
      const times = path.has_usual ? [stage.time, stage.usual] : [stage.time];
      const line = make("td", undefined, "line");
      const bar = make("div", undefined, stage.is_slow ? "bar slow" : "bar");
      bar.setAttribute("aria-hidden", "true");
      bar.style.left = `min(${100 * stage.start}%, 100% - 2px)`;  // its least width
      bar.style.width = `${100 * stage.share}%`;
      line.append(bar);
      return row([name, ...times.map((text) => make("td", text, "number")), line]);
    }));
  }

  function open(isShown) {
    if (!isShown || !byId("requests").hidden) return;
    byId("requests").hidden = false;
    list();
  }

  // After an answer of the chat.
  function offer(id) {
    answered = id;
    byId("served-path").hidden = !id || byId("requests").hidden;
  }

  document.addEventListener("submit", (event) => {
    if (event.target.id !== "find") return;
    event.preventDefault();
    const id = byId("request-id").value.trim();
    if (id) show(id, 0);
  });
  document.addEventListener("change", (event) => { if (event.target.id === "order") list(); });
  document.addEventListener("click", (event) => {
    if (event.target.id === "refresh") list();
    if (event.target.id === "served-path") show(answered, RETRIES);
  });
  return { open, offer };
})();
