"use strict";
// Search, filters and sorting of the list in the file, receipts that a mark opens, and news on a served page. All of a
// page is there without this.
(() => {
  const body = document.querySelector(".tables tbody");
  const form = document.querySelector("form[role=search]");
  if (body && form) {
    const rows = [...body.querySelectorAll("tr[data-name]")];
    const status = form.querySelector("[role=status]");
    const all = status.textContent.split(" of ")[1];
    const chosen = (name) => (form.elements[name] ? form.elements[name].value : "");
    const show = () => {
      let shown = 0;
      for (const row of rows) {
        const found = row.dataset.name.includes(chosen("search").trim().toLowerCase())
          && ["state", "namespace", "mode", "owner"].every((name) => !chosen(name) || row.dataset[name] === chosen(name));
        row.hidden = !found;
        shown += found;
      }
      status.textContent = `${shown} of ${all}`;
    };
    const sort = (heading) => {
      const text = heading.dataset.sort === "name";
      const key = `by-${heading.dataset.sort}`.replace(/-(.)/, (_, letter) => letter.toUpperCase());
      const before = heading.getAttribute("aria-sort");
      const down = before ? before === "ascending" : !text;
      for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const turn = down ? -1 : 1;
      rows.sort((one, two) => (text
        ? turn * (one.dataset.name < two.dataset.name ? -1 : 1)
        : turn * (Number(one.dataset[key]) - Number(two.dataset[key])) || one.dataset.place - two.dataset.place));
      body.append(...rows);
    };
    if (document.body.classList.contains("file")) {
      form.addEventListener("input", show);
      form.addEventListener("submit", (event) => event.preventDefault());
      for (const heading of document.querySelectorAll(".tables th[data-sort]")) {
        heading.querySelector("button").addEventListener("click", () => sort(heading));
      }
    }
  }
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", open);
  open();
  const events = document.body.dataset.events;
  if (!events) return;
  let source = null;
  let asking = false;
  // A page that is not renewed says so: what it shows may be another by now.
  const away = document.getElementById("away");
  const stand = (why) => {
    const at = document.querySelector("[data-live=at]");
    away.textContent = `This page is not renewed. ${at ? `${at.textContent.trim()}: ` : ""}${why}`;
  };
  const renew = async () => {
    if (asking) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok) {
        const why = page.querySelector("main .words");
        stand(why ? why.textContent : `the UI answers with ${answer.status}.`);
        return;
      }
      away.textContent = "";
      for (const old of document.querySelectorAll("[data-live]")) {
        const renewed = page.querySelector(`[data-live="${old.dataset.live}"]`);
        // A part that somebody reads or has the focus in stays until the next time.
        if (!renewed || renewed.innerHTML === old.innerHTML || old.contains(document.activeElement)) continue;
        if (old.querySelector("details[open]")) continue;
        old.replaceWith(document.adoptNode(renewed));
      }
    } catch (error) {
      stand("the UI does not answer.");
    } finally {
      asking = false;
    }
  };
  // A button asks once, posts its decision, and says what came of it.
  const dialog = document.querySelector("dialog");
  if (dialog) {
    const form = dialog.querySelector("form");
    const said = document.getElementById("said");
    let asked = null;
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-action]");
      if (!button) return;
      const place = button.closest("[data-act]");
      asked = { url: place.dataset.act, table: place.dataset.table, action: button.dataset.action };
      form.reset();
      document.getElementById("question").textContent = button.dataset.question;
      const fields = button.dataset.fields.split(" ");
      for (const part of form.querySelectorAll("[data-field]")) part.hidden = !fields.includes(part.dataset.field);
      dialog.returnValue = "";
      dialog.showModal();
    });
    dialog.addEventListener("close", async () => {
      if (dialog.returnValue !== "yes" || !asked) return;
      const { url, ...content } = asked;
      asked = null;
      for (const part of form.querySelectorAll("[data-field]:not([hidden]) input")) content[part.name] = part.value;
      said.textContent = "…";
      try {
        const headers = { "Content-Type": "application/json" };
        const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(content) });
        const told = await answer.json();
        said.textContent = told.said || `${told.error.code}: ${told.error.message}`;
      } catch (error) {
        said.textContent = `The UI does not answer: ${error.message}`;
      }
      document.activeElement.blur();
      renew();
    });
  }
  // A page that nobody sees follows nothing.
  const follow = () => {
    if (document.hidden) {
      if (source) source.close();
      source = null;
    } else if (!source) {
      source = new EventSource(events);
      source.addEventListener("board", renew);
      source.addEventListener("error", () => {
        stand("the UI does not answer.");
        if (source.readyState !== EventSource.CLOSED) return;
        // Refused, as where too many pages follow: a browser itself tries again only where it could not connect.
        source = null;
        setTimeout(follow, 10000);
      });
    }
  };
  document.addEventListener("visibilitychange", follow);
  follow();
})();
