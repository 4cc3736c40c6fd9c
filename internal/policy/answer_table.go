// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// MaxAnswerBytes bounds the texts of a policy's answers together. The data path relies on it.
const MaxAnswerBytes = 256 << 10

// answerAlign is what texts begin at a multiple of.
const answerAlign = 64

// AnswerTables is what is said to who is refused, ready to be sent. Services that say the same are of one
// kind, and each row has an answer for each kind.
type AnswerTables struct {
	Texts   []byte
	Kinds   int
	Kind    []int         // by service
	Row     []int         // by request rule
	Answers []AnswerTable // row × Kinds + kind
}

// The rows of every policy, as the data path knows them.
const (
	RowOverload = iota
	RowMalformed
	RowTooLarge
	RowBlocked // the client's connections are refused
)

// AnswerTable is one answer: the text for everybody, and if it has a page for GETs that.
type AnswerTable struct {
	Answer     Answer
	At         int // offset in Texts
	Length     int // bytes; 0: a reset
	Head       int // bytes without the body
	PageAt     int
	PageLength int  // 0: there is none
	PageForAny bool // for all GETs, not for those alone that accept HTML
}

// Answer returns what a service says to a request that a row is for.
func (t *AnswerTables) Answer(service, row int) Answer {
	return t.Answers[row*t.Kinds+t.Kind[service]].Answer
}

// Refused is what a service says, in brief, to a request that is refused by the request rule of a row, or for a
// reason by its name, as the data path has them.
func (t *Tables) Refused(service, row int, reason string) string {
	switch {
	case t.Answers == nil || service < 0 || t.Services[service].Room.Protocol != HTTP || reason == "dropped":
		return Answer{Reset: true}.Brief()
	case reason == "malformed" || reason == "h2c" || reason == "complex":
		row = RowMalformed
	case reason == "too_large":
		row = RowTooLarge
	case reason == "blocked":
		row = RowBlocked
	case reason != "" && reason != "rule" || row < 0:
		row = RowOverload
	}
	return t.Answers.Answer(service, row).Brief()
}

// answerRow is what the answers of a row have in common.
type answerRow struct {
	own   Answer // what the rule says
	has   bool   // it says something; else it is what the service says
	cause Cause
	block time.Duration
}

type answerCompiler struct {
	*AnswerTables
	kinds []Answer
	rows  map[answerRow]int
	at    map[string]int // by text
}

// compileAnswers makes the answers of a policy.
func compileAnswers(p *Policy) *AnswerTables {
	c := &answerCompiler{AnswerTables: &AnswerTables{}, rows: map[answerRow]int{}, at: map[string]int{}}
	byKind := map[Answer]int{}
	for i := range p.Services {
		says := p.Services[i].Reject
		kind, ok := byKind[says]
		if !ok {
			kind = len(c.kinds)
			byKind[says] = kind
			c.kinds = append(c.kinds, says)
		}
		c.Kind = append(c.Kind, kind)
	}
	c.Kinds = len(c.kinds)
	c.row(answerRow{})
	c.plain("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 400)
	c.plain("HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 431)
	blocked := answerRow{cause: CauseRate}
	for i := range p.Requests {
		blocked.block = max(blocked.block, p.Requests[i].Block)
	}
	c.rows[blocked] = RowBlocked
	c.add(blocked)
	for i := range p.Requests {
		c.Row = append(c.Row, c.row(rowOf(&p.Requests[i])))
	}
	return c.AnswerTables
}

// rowOf is what is said to who a rule refuses.
func rowOf(r *Request) answerRow {
	row := answerRow{cause: r.cause(), block: r.Block}
	if r.Answer != nil {
		row.own, row.has = *r.Answer, true
	}
	return row
}

// cause is why a rule refuses.
func (q *Request) cause() Cause {
	switch {
	case q.Action == ActionPolice:
		return CauseRate
	case q.When != WhenAlways:
		return CauseOverload
	}
	return CauseRule
}

func (c *answerCompiler) row(r answerRow) int {
	row, ok := c.rows[r]
	if !ok {
		row = len(c.Answers) / c.Kinds
		c.rows[r] = row
		c.add(r)
	}
	return row
}

// add adds a row.
func (c *answerCompiler) add(r answerRow) {
	for _, says := range c.kinds {
		if r.has {
			says = r.own
		}
		c.Answers = append(c.Answers, c.table(says.For(r.cause, r.block)))
	}
}

// plain adds a row of one text whatever services say.
func (c *answerCompiler) plain(text string, status int) {
	for range c.kinds {
		c.Answers = append(c.Answers, AnswerTable{Answer: Answer{Status: status}, At: c.place(text), Length: len(text), Head: len(text)})
	}
}

func (c *answerCompiler) table(a Answer) AnswerTable {
	t := AnswerTable{Answer: a}
	if a.Reset {
		return t
	}
	page := a.Page
	if page == (Page{}) {
		page = Page{Type: "text/html; charset=utf-8", Body: a.busyPage(), Repeats: true}
	}
	if page.Repeats {
		text, _ := a.response(page.Type, page.Body)
		t.PageAt, t.PageLength, t.PageForAny = c.place(text), len(text), page.File != ""
		page = Page{}
	}
	text, head := a.response(page.Type, page.Body)
	t.At, t.Length, t.Head = c.place(text), len(text), head
	return t
}

// place puts a text where it is, or behind the others.
func (c *answerCompiler) place(text string) int {
	at, ok := c.at[text]
	if !ok {
		at = (len(c.Texts) + answerAlign - 1) / answerAlign * answerAlign
		c.at[text] = at
		c.Texts = append(append(c.Texts, make([]byte, at-len(c.Texts))...), text...)
	}
	return at
}

// fits reports answers that are too much together.
func (t *AnswerTables) fits(d *diagnostics, p *Policy) {
	const most = 1 << 16 // rows, as rules name them
	switch {
	case len(t.Texts) > MaxAnswerBytes:
		d.errorf(p.Services[0].Pos, "the answers of all rules and services take %d KiB; they have at most %d: write fewer or shorter pages, or the same answers", (len(t.Texts)+1023)/1024, MaxAnswerBytes>>10)
	case len(t.Answers) >= most:
		d.errorf(p.Services[0].Pos, "rules and services have %d answers; there can be at most %d: write the same answer in more of them", len(t.Answers), most-1)
	}
}

// shortSum tells one text from another.
func shortSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("(%d bytes, %s)", len(text), hex.EncodeToString(sum[:4]))
}
