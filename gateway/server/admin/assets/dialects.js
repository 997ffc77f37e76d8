// The playground's conversation in the words of each API: the body of a request, and what a response says.
// A turn of the history is {role: "user" | "tool", text, id} or an answer, as newAnswer() makes it.

export const newAnswer = () => ({ role: "assistant", text: "", reasoning: "", calls: [], finish: "", usage: null, error: "" });

function callOf(answer, key, { id, name }) {
    let call = answer.calls.find((one) => one.key === key);
    if (!call) answer.calls.push(call = { key, id: "", name: "", args: "" });
    call.id ||= id ?? "";
    call.name ||= name ?? "";
    return call;
}

function failed(answer, error) {
    answer.error = error.message ?? JSON.stringify(error);
}

// Tools are written as chat completions have them; those of another form go as they are.
const plain = (tool, make) => (tool.function ? make(tool.function) : tool);
const object = (text) => {
    try {
        return JSON.parse(text);
    } catch {
        return {}; // the model wrote no JSON
    }
};

// Chat completions

const chat = {
    path: "/v1/chat/completions",
    body({ system, tools, history, temperature, limit, stream }) {
        const messages = system ? [{ role: "system", content: system }] : [];
        for (const turn of history) messages.push(chat.message(turn));
        const usage = stream ? { stream_options: { include_usage: true } } : {};
        return { messages, tools, temperature, max_completion_tokens: limit, stream, ...usage };
    },
    message({ role, text, id, calls }) {
        if (role === "tool") return { role, tool_call_id: id, content: text };
        if (!calls?.length) return { role, content: text };
        const functions = calls.map(({ id, name, args }) => ({ id, type: "function", function: { name, arguments: args } }));
        return { role, content: text || null, tool_calls: functions };
    },
    read(answer, { choices, usage, error }) {
        if (error) failed(answer, error);
        if (usage) answer.usage = { input: usage.prompt_tokens, output: usage.completion_tokens };
        const { delta, message, finish_reason: finish } = choices?.[0] ?? {};
        const said = delta ?? message ?? {};
        answer.text += said.content ?? "";
        answer.reasoning += said.reasoning_content ?? said.reasoning ?? "";
        (said.tool_calls ?? []).forEach(({ index, id, function: called }, place) => {
            callOf(answer, index ?? place, { id, name: called?.name }).args += called?.arguments ?? "";
        });
        answer.finish = finish ?? answer.finish;
    },
};

// Responses

const responses = {
    path: "/v1/responses",
    body({ system, tools, history, temperature, limit, stream }) {
        const named = tools?.map((tool) => plain(tool, (one) => ({ type: "function", ...one })));
        const input = history.flatMap(responses.items);
        return { instructions: system || undefined, input, tools: named, temperature, max_output_tokens: limit, stream, store: false };
    },
    items({ role, text, id, calls = [] }) {
        if (role === "tool") return [{ type: "function_call_output", call_id: id, output: text }];
        const called = calls.map(({ id: call_id, name, args }) => ({ type: "function_call", call_id, name, arguments: args }));
        return [...(text ? [{ role, content: text }] : []), ...called];
    },
    read(answer, { type, delta, item, item_id: key, response, error, message, output, ...whole }) {
        if (error || type === "error") failed(answer, error ?? { message });
        if (type?.endsWith("output_text.delta")) answer.text += delta;
        if (/reasoning(_summary)?_text\.delta$/.test(type)) answer.reasoning += delta;
        if (type === "response.output_item.added" && item.type === "function_call") {
            callOf(answer, item.id, { id: item.call_id, name: item.name });
        }
        if (type === "response.function_call_arguments.delta") callOf(answer, key, {}).args += delta;
        if (response) responses.end(answer, response);
        if (output) responses.whole(answer, output, whole);
    },
    end(answer, { status, usage, error, incomplete_details: why }) {
        if (error) failed(answer, error);
        if (usage) answer.usage = { input: usage.input_tokens, output: usage.output_tokens };
        answer.finish = why?.reason ?? status;
    },
    whole(answer, output, rest) {
        responses.end(answer, rest);
        for (const { type, id, call_id, name, arguments: args, content, summary } of output) {
            const text = [...(content ?? []), ...(summary ?? [])].map((part) => part.text ?? "").join("");
            if (type === "message") answer.text += text;
            else if (type === "reasoning") answer.reasoning += text;
            else if (type === "function_call") callOf(answer, id, { id: call_id, name }).args = args;
        }
    },
};

// Messages

const LIMIT = 4096; // Messages need some limit

const messages = {
    path: "/v1/messages",
    body({ system, tools, history, temperature, limit, stream }) {
        const named = tools?.map((tool) => plain(tool, ({ name, description, parameters }) => ({ name, description, input_schema: parameters ?? { type: "object" } })));
        const turns = [];
        for (const turn of history) {
            const role = turn.role === "assistant" ? "assistant" : "user", last = turns.at(-1);
            if (last?.role === role) last.content.push(...messages.blocks(turn));
            else turns.push({ role, content: messages.blocks(turn) });
        }
        return { system: system || undefined, messages: turns, tools: named, temperature, max_tokens: limit ?? LIMIT, stream };
    },
    blocks({ role, text, id, calls = [] }) {
        if (role === "tool") return [{ type: "tool_result", tool_use_id: id, content: text }];
        const used = calls.map(({ id, name, args }) => ({ type: "tool_use", id, name, input: object(args) }));
        return [...(text ? [{ type: "text", text }] : []), ...used];
    },
    read(answer, { type, index, content_block: block, delta, usage, error, content, stop_reason: reason, message }) {
        if (error) failed(answer, error);
        if (type === "content_block_start") messages.block(answer, block, index);
        if (delta?.text) answer.text += delta.text;
        if (delta?.thinking) answer.reasoning += delta.thinking;
        if (delta?.partial_json) callOf(answer, index, {}).args += delta.partial_json;
        const counted = usage ?? message?.usage;
        if (counted) answer.usage = { input: counted.input_tokens ?? answer.usage?.input, output: counted.output_tokens };
        answer.finish = delta?.stop_reason ?? reason ?? answer.finish;
        (content ?? []).forEach((one, place) => messages.block(answer, one, place));
    },
    block(answer, { type, id, name, input, text, thinking }, place) {
        answer.text += text ?? "";
        answer.reasoning += thinking ?? "";
        if (type !== "tool_use") return;
        const call = callOf(answer, place, { id, name });
        if (Object.keys(input ?? {}).length) call.args = JSON.stringify(input);
    },
};

export const APIS = { chat, responses, messages };

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
