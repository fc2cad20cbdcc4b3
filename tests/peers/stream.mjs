// Polls and streams with the TypeScript SDK: node stream.mjs http URL TOKEN EVENT | node stream.mjs stdio EVENT COMMAND...
// Prints "listening" once the stream stands, then the id of the first event.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import * as z from 'zod';

const [way, ...rest] = process.argv.slice(2);
let transport, name;
if (way === 'stdio') {
  const [event, command, ...args] = rest;
  name = event;
  transport = new StdioClientTransport({ command, args, stderr: 'inherit' });
} else {
  const [url, token, event] = rest;
  name = event;
  transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
}
const any = z.looseObject({});
const client = new Client({ name: 'peer', version: '1' }, { versionNegotiation: { mode: 'auto' } });
client.setNotificationHandler('notifications/events/active', { params: any }, () => console.log('listening'));
const first = new Promise((resolve) =>
  client.setNotificationHandler('notifications/events/event', { params: any }, (event) => resolve(event)),
);
await client.connect(transport);
const begin = await client.request({ method: 'events/poll', params: { name, arguments: {}, cursor: null } }, any);
const stop = new AbortController();
const stream = client.request({ method: 'events/stream', params: { name, arguments: {}, cursor: begin.cursor } }, any, {
  signal: stop.signal,
  timeout: 600000,
});
stream.catch(() => {});
console.log((await first).eventId);
const page = await client.request({ method: 'events/poll', params: { name, arguments: {}, cursor: begin.cursor } }, any);
console.log(page.events.map((event) => event.eventId).join(','));
stop.abort('enough');
await client.close();
process.exit(0);
