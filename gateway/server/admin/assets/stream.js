// Three linked columns: reads from the backend, events, and output for the client.

import { find, made } from "./elements.js";
import { Exchange, brief, text } from "./exchange.js";
import { pretty } from "./conversation.js";
import { Rows } from "./rows.js";

const LONGEST = 100_000; // characters that are shown of one thing
const IN_ROW = 300;
const COLUMNS = ["reads", "events", "sent"];

export class Stream {
    constructor() {
        this.seen = new Exchange();
        this.columns = {};
        this.marks = null;
        this.grown = Infinity; // the event up to which calls are shown
        for (const name of COLUMNS) {
            this.columns[name] = new Rows(find(name), (row, item) => this.#fill(row, item), (place) => this.choose(name, place));
            this.columns[name].items = this.seen[name];
            find(name).addEventListener("keydown", (event) => this.#aside(event, name));
        }
        find("tabs").addEventListener("click", (event) => event.target.dataset.column && this.#tab(event.target.dataset.column));
    }

    // Show entries that were added to `seen`.  markers: the tags that models write.
    shown(markers, live) {
        this.marks ??= new RegExp(markers.map((one) => one.replace(/[^\w\s]/g, "\\$&")).join("|"), "g");
        for (const name of COLUMNS) this.columns[name].grown(live);
        this.#showCalls();
    }

    // The row of a recorded entry.
    open(n) {
        const name = COLUMNS.find((one) => this.seen[one].some((item) => item.entry.n === n));
        if (name) this.choose(name, this.seen[name].findIndex((item) => item.entry.n === n));
    }

    // The row of an address: "reads-9" is the tenth of the first column.
    choosePlace(row) {
        const [name, place] = row?.split("-") ?? [];
        if (this.columns[name]?.items[place]) this.choose(name, Number(place));
    }

    choose(name, place) {
        const item = this.columns[name].items[place], address = new URL(location);
        address.searchParams.set("row", `${name}-${place}`);
        history.replaceState(history.state, "", address);
        for (const other of COLUMNS) {
            const rows = this.columns[other];
            rows.chosen = -1;
            const linked = other === name ? place : rows.items.findIndex((one) => one.group === item.group);
            if (linked >= 0) rows.show(linked, other === name);
            rows.mark(item.group);
        }
        find("chosen").replaceChildren(...this.#marked(whole(item)));
        this.grown = name === "events" ? place : this.seen.events.findLastIndex((one) => one.entry.n <= item.entry.n);
        this.#showCalls();
    }

    #fill(row, item) {
        row.append(made("span", item.entry.t.toFixed(3), "time"));
        if (item.label) row.append(made("span", item.label, `label ${item.look}`));
        const words = made("span", "", `words ${item.look}`);
        words.append(...this.#marked((item.data ? item.text : brief(item.text)).slice(0, IN_ROW).replaceAll("\n", "⏎")));
        row.append(words);
    }

    // The text, with the tags around reasoning and calls marked.
    #marked(line) {
        const parts = [];
        let done = 0;
        for (const found of line.matchAll(this.marks)) {
            parts.push(line.slice(done, found.index), made("mark", found[0]));
            done = found.index + found[0].length;
        }
        return [...parts, line.slice(done)];
    }

    #showCalls() {
        const begun = this.seen.calls.filter((call) => call.place <= this.grown);
        find("called").hidden = begun.length === 0;
        find("calls").replaceChildren(...begun.flatMap((call) => {
            const so = call.pieces.filter((piece) => piece.place <= this.grown);
            const last = so.at(-1)?.place === this.grown ? so.pop().text : "";
            const shown = made("pre", so.map((piece) => piece.text).join("").slice(-LONGEST));
            if (last) shown.append(made("mark", last));
            return [made("h4", call.name), shown];
        }));
    }

    // Left and right: to the linked row of the next column.
    #aside(event, name) {
        const step = { ArrowLeft: -1, ArrowRight: 1, Enter: 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const other = COLUMNS[(COLUMNS.indexOf(name) + step + COLUMNS.length) % COLUMNS.length];
        const chosen = this.columns[name].items[this.columns[name].chosen];
        const place = chosen ? this.columns[other].items.findIndex((one) => one.group === chosen.group) : -1;
        this.#tab(other);
        this.columns[other].box.focus();
        if (place >= 0) this.choose(other, place);
    }

    #tab(name) {
        find("columns").dataset.shown = name;
        for (const button of find("tabs").children) button.setAttribute("aria-pressed", button.dataset.column === name);
        this.columns[name].draw();
    }
}

function whole(item) {
    const bytes = item.data ? null : item.entry.body ?? item.entry.data;
    const body = bytes ? pretty(text(bytes)) : JSON.stringify(item.data ?? item.entry, null, 1);
    const rest = item.entry.cut && bytes ? `\n… of ${item.entry.cut} bytes` : "";
    return body.slice(0, LONGEST) + (body.length > LONGEST ? "\n…" : rest);
}
