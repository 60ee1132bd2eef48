// What makes pages handier where scripts run. Nothing here is needed: every form works without it.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // Theme: shown at once, and kept by the form's own answer.
  const theme = document.querySelector("[data-theme-form]");
  if (theme) {
    theme.theme.addEventListener("change", () => {
      root.dataset.theme = theme.theme.value;
      fetch(theme.action, { method: "POST", body: new URLSearchParams(new FormData(theme)), redirect: "manual" });
    });
  }

  // Copying commands.
  const say = (button, word) => {
    const text = button.firstChild.nodeValue;
    button.firstChild.nodeValue = word;
    setTimeout(() => { button.firstChild.nodeValue = text; }, 1500);
  };
  const copy = (button) => {
    const from = document.getElementById(button.dataset.copy);
    const text = from.textContent;
    if (navigator.clipboard) {
      navigator.clipboard.writeText(text).then(() => say(button, "Copied"), () => select(from, button));
    } else {
      select(from, button);
    }
  };
  // Over plain HTTP there is no clipboard: select, and let the old command try.
  const select = (from, button) => {
    const range = document.createRange();
    range.selectNodeContents(from);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    say(button, document.execCommand("copy") ? "Copied" : "Selected");
  };

  // Parts of a form that matter for one choice alone: data-when="name=value other".
  const applies = (part) => {
    const [name, values] = part.dataset.when.split("=");
    const form = part.closest("form");
    const chosen = [...form.querySelectorAll(`[name="${name}"]`)]
      .filter((it) => it.type === "radio" || it.type === "checkbox" ? it.checked : true)
      .map((it) => it.value);
    return values.split(" ").some((value) => chosen.includes(value));
  };
  const dependents = (within) => {
    for (const part of within.querySelectorAll("[data-when]")) { part.hidden = !applies(part); }
  };

  const ready = (within) => {
    for (const button of within.querySelectorAll("[data-copy]")) {
      button.hidden = false;
      button.onclick = () => copy(button);
    }
    // A secret that is as good as any: shown once, to be written down.
    for (const button of within.querySelectorAll("[data-make-secret]")) {
      button.hidden = false;
      button.onclick = () => {
        const letters = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
        const bytes = crypto.getRandomValues(new Uint8Array(64));
        const field = document.getElementById(button.dataset.makeSecret);
        const good = [...bytes].filter((byte) => byte < letters.length * 4);
        field.value = good.slice(0, 16).map((byte) => letters[byte % letters.length]).join("");
        field.type = "text";
        field.focus();
        field.select();
      };
    }
    // A file is read into the field that is sent.
    for (const part of within.querySelectorAll("[data-file-for]")) {
      part.hidden = false;
      part.querySelector("input").onchange = async (event) => {
        const [file] = event.target.files;
        if (file) { document.getElementById(part.dataset.fileFor).value = await file.text(); }
      };
    }
    dependents(within);
  };

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form");
    if (form) { dependents(form); }
  });
  document.addEventListener("keydown", (event) => {
    const menu = document.querySelector("[data-menu][open]");
    if (event.key === "Escape" && menu) { menu.open = false; menu.querySelector("summary").focus(); }
  });
  // A form that was sent is not sent twice.
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    if (event.target.method === "post") { event.target.dataset.sent = "yes"; }
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("[data-sent]")) { delete form.dataset.sent; }
  });
  // Rows that come while a log is open, rendered by the node as those that are there.
  for (const log of document.querySelectorAll("[data-log]")) {
    const source = new EventSource(log.dataset.log);
    source.addEventListener("row", (message) => log.insertAdjacentHTML("afterbegin", message.data));
    window.addEventListener("pagehide", () => source.close());
  }
  document.addEventListener("htmx:load", (event) => ready(event.target));
  ready(document);
})();
