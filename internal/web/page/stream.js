// SPDX-License-Identifier: Apache-2.0
// The connection to the daemon: views as they come, and a new connection when it is lost.

const retryAfter = 1500; // ms
const silent = 6000; // ms without a view, after which the connection is taken to be lost

/**
 * Watches for as long as the page is there. Calls view(v) for each view, and lost(why) when there
 * is no connection any more; why is a sentence.
 */
export function watch({ view, lost }) {
  let source;
  let timer;
  let told = false;

  function open() {
    source = new EventSource('/live');
    source.onmessage = (e) => {
      told = false;
      wait();
      view(JSON.parse(e.data, complete));
    };
    source.onerror = again;
    wait();
  }

  // wait gives the connection up unless something comes: after the machine has slept, or when
  // the network is gone, nobody says so.
  function wait() {
    clearTimeout(timer);
    timer = setTimeout(again, silent);
  }

  async function again() {
    source.close();
    clearTimeout(timer);
    if (!told) lost('Connection lost, trying again.');
    told = true;
    const why = await refusal();
    if (why) lost(why);
    timer = setTimeout(open, retryAfter);
  }

  open();
}

const lists = new Set(['services', 'classes', 'rules', 'requests', 'sources', 'interfaces', 'overrides', 'limit_changes', 'keep', 'notes', 'warnings', 'silent']);

// complete makes what Go writes for an empty list one.
const complete = (key, value) => (value === null && lists.has(key) ? [] : value);

// refusal says why the daemon takes no watcher, if it answers so.
async function refusal() {
  try {
    const answer = await fetch('/live', { method: 'HEAD', cache: 'no-store', signal: AbortSignal.timeout(silent) });
    if (answer.status === 503) return 'Too many are watching. Close a dashboard elsewhere; trying again.';
    if (!answer.ok) return `The daemon answers ${answer.status}, trying again.`;
  } catch {
    // Nobody answers: that was said.
  }
  return '';
}
