// The recorded steps of a request, fetched when a reader opens the stream, the bodies or the command.

import { ask, reason } from "./api_key.js";
import { find, made } from "./elements.js";
import { curl, text } from "./exchange.js";
import { pretty } from "./conversation.js";
import { get, tell } from "./follow.js";
import { styles } from "./parts.js";
import { Stream } from "./stream.js";

export class Steps {
    #path;
    #stream = new Stream();
    #turn = styles("steps.css"); // they come before the rows

    // path: returns the address of a part of the request, and its query.
    constructor(path) {
        this.#path = path;
    }

    // Fetch and show new steps, one call after the other; return false if the gateway refuses.
    load(head) {
        find("stream").ariaBusy = true;
        return this.#turn = this.#turn.catch(() => {}).then(() => this.#load(head)).finally(() => {
            find("stream").ariaBusy = false;
        });
    }

    // The rest of a long stream follows the first rows.
    async #load(head) {
        const [where, query] = this.#path("/entries"), { seen } = this.#stream;
        for (let more = true; more;) {
            query.set("after", seen.last);
            const page = await get(where, query);
            if (!page) return false;
            for (const entry of page.entries) seen.add(entry);
            more = page.more;
            this.#stream.shown(head.markers, head.live && !more);
            if (more) tell(`${(seen.last + 1).toLocaleString()} of ${head.entries.toLocaleString()} entries`);
        }
        this.#showBodies();
        if (!head.live) tell("complete");
        return true;
    }

    open(n) {
        this.#stream.open(n);
    }

    choosePlace(row) {
        this.#stream.choosePlace(row);
    }

    #showBodies() {
        const { request, reads } = this.#stream.seen, put = reads.findLast((one) => one.entry.kind === "put")?.entry;
        for (const [id, entry] of [["request-body", request], ["backend-body", put]]) {
            if (find(id).dataset.n === `${entry?.n}`) continue;
            find(id).dataset.n = `${entry?.n}`;
            find(id).textContent = entry ? pretty(text(entry.body)) + (entry.cut ? `\n… of ${entry.cut} bytes` : "") : "None.";
        }
    }

    async copy() {
        const { request } = this.#stream.seen, command = !request || request.cut ? "" : curl(request, location.origin);
        if (!command) {
            find("copied").textContent = "The command is too long. Download the recording instead.";
            return;
        }
        find("chosen").textContent = command;
        try {
            await navigator.clipboard.writeText(command);
            find("copied").textContent = "Copied. Set the API key in GATEWAY_KEY.";
        } catch {
            find("copied").textContent = "The command is shown below.";
        }
    }
}

export async function download(head, [where, query]) {
    const answer = await ask(`${where}?${query}`);
    if (!answer.ok) {
        tell(reason(await answer.text()));
        return;
    }
    const link = made("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `${head.id.replaceAll(/[^\w-]/g, "_")}.jsonl`;
    link.click();
    URL.revokeObjectURL(link.href);
}
