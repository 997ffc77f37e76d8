// A list of any length.  The document holds only the visible rows, which have one height; one row is selected.

const HEIGHT = 26; // pixels, as in exchange.css
const BEYOND = 8; // rows above and below what is seen

export class Rows {
    // box: the list's element; fill(row, item): puts an item into an empty row; choose(item): is called for a chosen item.
    constructor(box, fill, choose) {
        Object.assign(this, { box, fill, choose, items: [], chosen: -1, drawn: new Map(), room: box.firstElementChild });
        box.addEventListener("scroll", () => this.draw());
        box.addEventListener("click", (event) => this.#clicked(event));
        box.addEventListener("keydown", (event) => this.#typed(event));
        new ResizeObserver(() => this.draw()).observe(box);
    }

    clear() {
        this.items = [];
        this.chosen = -1;
        this.box.scrollTop = 0;
        this.redraw();
    }

    // Show added items.  live: a list at its end stays at its end.
    grown(live) {
        const { scrollTop, clientHeight } = this.box;
        const atEnd = scrollTop + clientHeight > this.room.offsetHeight - HEIGHT;
        this.room.style.height = `${this.items.length * HEIGHT}px`;
        if (live && atEnd && this.chosen < 0) this.box.scrollTop = this.room.offsetHeight;
        this.draw();
        this.mark(this.group);
    }

    redraw() {
        for (const row of this.drawn.values()) row.remove();
        this.drawn.clear();
        this.grown(false);
    }

    draw() {
        const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - BEYOND);
        const last = Math.min(this.items.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT) + BEYOND);
        for (const [place, row] of this.drawn) {
            if (place < first || place >= last) {
                row.remove();
                this.drawn.delete(place);
            }
        }
        for (let place = first; place < last; place++) {
            if (!this.drawn.has(place)) this.drawn.set(place, this.#row(place));
        }
    }

    // Scroll to a place, and select it if `chosen`.
    show(place, chosen) {
        if (chosen) this.chosen = place;
        const top = place * HEIGHT, { scrollTop, clientHeight } = this.box;
        if (top < scrollTop || top + HEIGHT > scrollTop + clientHeight) this.box.scrollTop = top - clientHeight / 3;
        this.draw();
    }

    // Mark the rows of a group.
    mark(group) {
        for (const [place, row] of this.drawn) this.#mark(place, row, group);
        this.group = group;
        if (this.chosen < 0) this.box.removeAttribute("aria-activedescendant");
        else this.box.setAttribute("aria-activedescendant", this.#id(this.chosen));
    }

    #row(place) {
        const row = document.createElement("div");
        row.id = this.#id(place);
        row.className = "row";
        row.style.top = `${place * HEIGHT}px`;
        row.setAttribute("role", "option");
        row.setAttribute("aria-posinset", place + 1);
        this.fill(row, this.items[place]);
        this.#mark(place, row, this.group);
        this.room.append(row);
        return row;
    }

    #mark(place, row, group) {
        row.classList.toggle("linked", group !== undefined && this.items[place].group === group);
        row.classList.toggle("chosen", place === this.chosen);
        row.setAttribute("aria-selected", place === this.chosen);
        row.setAttribute("aria-setsize", this.items.length);
    }

    #id(place) {
        return `${this.box.id}-${place}`;
    }

    #clicked(event) {
        const row = event.target.closest(".row");
        if (row) this.choose(Number(row.id.slice(this.box.id.length + 1)));
    }

    #typed(event) {
        const page = Math.max(1, Math.floor(this.box.clientHeight / HEIGHT) - 1);
        const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
        const step = steps[event.key];
        if (!step || !this.items.length) return;
        event.preventDefault();
        this.choose(Math.min(this.items.length - 1, Math.max(0, this.chosen + step)));
    }
}
