// A replay in another format, beside the response that the client received.

import { ask, reason } from "./api_key.js";
import { find } from "./elements.js";
import { showResponse } from "./conversation.js";
import { styles } from "./parts.js";

await styles("compare.css");

let runs = 0;

export async function replay(format, head, talk, [where, more]) {
    find("format").value = format;
    find("report").textContent = `Replaying in the format ${format} …`;
    find("replay").scrollIntoView();
    const query = new URLSearchParams(location.search);
    query.set("compare", format);
    history.replaceState(null, "", `?${query}`);
    const run = ++runs;
    find("progress").removeAttribute("value");
    const answer = await ask(`${where}?${more}`, { method: "POST", body: JSON.stringify({ format }) });
    const body = await answer.text();
    if (run < runs) return; // another one was begun
    find("progress").setAttribute("value", 0);
    const { same, differences, reason: why, response } = answer.ok ? JSON.parse(body) : { reason: reason(body) };
    find("compared").hidden = !response;
    if (!response || !talk) {
        find("report").textContent = `The replay is not possible: ${why}`;
        return;
    }
    find("report").textContent = same ? `The format ${format} gives the same response.` : `The format ${format} gives another response.`;
    find("before-format").textContent = head.format;
    find("after-format").textContent = format;
    find("before").replaceChildren(...showResponse(talk.response));
    find("after").replaceChildren(...showResponse(response));
    find("differences").textContent = differences.join("\n") || "None.";
    find("yaml").textContent = `models:\n  ${JSON.stringify(head.model)}:\n    format: ${format}`;
}
