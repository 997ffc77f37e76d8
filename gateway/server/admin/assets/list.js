// The list of requests as rows of a table, which stay those that they are while what they say changes.

import { badge, made } from "./elements.js";

export function showList(body, exchanges) {
    const rows = new Map([...body.children].map((row) => [row.dataset.key, row]));
    exchanges.forEach((one, place) => {
        const name = `${one.id} ${one.started}`, row = rows.get(name) ?? made("tr");
        rows.delete(name);
        row.dataset.key = name;
        renew(row, cells(one));
        const before = body.children[place];
        if (before !== row) body.insertBefore(row, before ?? null);
    });
    for (const row of rows.values()) row.remove();
}

// How it ended, or that it goes on.
export function state({ live, status, error }) {
    if (live) return badge("live", "live");
    return badge(status, status < 400 && !error ? "good" : "bad");
}

function cells(one) {
    const link = made("a", one.id);
    link.href = `/inspector?${new URLSearchParams({ id: one.id, started: one.started })}`;
    const ended = made("td");
    ended.append(state(one));
    if (one.error) ended.append(made("span", one.error, "note"));
    const noted = made("td", "", "wide");
    noted.append(...one.ledger.flatMap((said) => [badge(said), " "]));
    const id = made("th", "", "id");
    id.append(link);
    return [
        id, ended, made("td", one.model || "–"),
        made("td", one.backend || "–", "wide"), made("td", one.format || "–", "wide"),
        made("td", `${one.duration.toFixed(2)} s`, "number"), made("td", one.output_tokens ?? "–", "number wide"), noted,
        made("td", new Date(one.started).toLocaleTimeString(), "number wide"),
    ];
}

function renew(row, cells) {
    cells.forEach((cell, place) => {
        const before = row.children[place];
        if (!before) row.append(cell);
        else if (!before.isEqualNode(cell)) before.replaceWith(cell);
    });
}
