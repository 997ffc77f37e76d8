// What the dialects of the playground share.  chat.js, responses.js and messages.js each export `api`, a conversation in the
// words of one API: the body of a request, and what a response says.
// A turn of the history is {role: "user" | "tool", text, id} or an answer, as newAnswer() makes it.

export const newAnswer = () => ({ role: "assistant", text: "", reasoning: "", calls: [], finish: "", usage: null, error: "" });

export function callOf(answer, key, { id, name }) {
    let call = answer.calls.find((one) => one.key === key);
    if (!call) answer.calls.push(call = { key, id: "", name: "", args: "" });
    call.id ||= id ?? "";
    call.name ||= name ?? "";
    return call;
}

export function failed(answer, error) {
    answer.error = error.message ?? JSON.stringify(error);
}

// Tools are written as chat completions have them; those of another form go as they are.
export const plain = (tool, make) => (tool.function ? make(tool.function) : tool);
export const object = (text) => {
    try {
        return JSON.parse(text);
    } catch {
        return {}; // the model wrote no JSON
    }
};

// The data of server-sent events in a growing text: push() gives what is new of it.
export class Frames {
    #rest = "";

    push(text) {
        const frames = (this.#rest + text).split(/\r?\n\r?\n/);
        this.#rest = frames.pop();
        return frames.flatMap((frame) => {
            const data = frame.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n").trim();
            return data && data !== "[DONE]" ? [JSON.parse(data)] : [];
        });
    }
}
