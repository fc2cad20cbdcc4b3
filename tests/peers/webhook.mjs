// Subscribes with the AI SDK's client and takes events with its receiver: node webhook.mjs URL TOKEN EVENT
// Prints "subscribed" when the server may send, then the id of the first event, then "refreshed" and "unsubscribed".
import http from 'node:http';
import { createMCPClient, experimental_createMCPEventWebhook as receiver } from '@ai-sdk/mcp';

const [url, token, name] = process.argv.slice(2);
const known = new Map();
const store = {
  set: async (entry) => void known.set(entry.key, entry),
  get: async (key) => known.get(key),
  getById: async (id) => [...known.values()].find((entry) => entry.id === id),
  update: async (key, change) => void known.set(key, { ...known.get(key), ...change }),
  delete: async (key) => void known.delete(key),
};
let arrived;
const first = new Promise((resolve) => (arrived = resolve));
const take = receiver({ store, onEvent: async ({ event }) => arrived(event) });
const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const answer = await take(
    new Request(`http://127.0.0.1${request.url}`, { method: 'POST', headers: request.headers, body: Buffer.concat(parts) }),
  );
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const client = await createMCPClient({
  transport: { type: 'http', url, headers: { Authorization: `Bearer ${token}` } },
  experimental_events: { store },
});
const events = client.experimental_events;
const callback = `http://127.0.0.1:${server.address().port}/hook`;
const subscription = await events.subscribe({
  name,
  arguments: {},
  delivery: { mode: 'webhook', url: callback, allowInsecureLocalhost: true },
});
console.log('subscribed');
console.log((await first).eventId);
await events.refresh({ id: subscription.id });
console.log('refreshed');
await events.unsubscribe({ id: subscription.id });
console.log('unsubscribed');
process.exit(0);
