// SPDX-License-Identifier: Apache-2.0
//
// Says what it reads of a request.
//   node -e TEXT ADDRESS PORT

const hex = (s) => Buffer.from(s, 'latin1').toString('hex');
const server = require('http').createServer((request, answer) => {
  request.resume();
  request.on('end', () => {
    const { host = '', 'x-rule': rule = '' } = request.headers;
    answer.end([request.method, host, rule, '', request.url].map(hex).join('.'));
  });
});
server.listen(+process.argv[2], process.argv[1]);
