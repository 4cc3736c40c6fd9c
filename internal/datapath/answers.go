// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"strconv"
	"unsafe"

	"narthex/internal/policy"
)

const (
	answerStride    = len(narthexAnswerPart{}.Text) - mostPiece
	mostPiece       = 1220 // MAX_PIECE
	refusalsPerCell = cellSize / int(unsafe.Sizeof(narthexRefusal{}))
)

// keyAnswers is where the journal has the offset of the texts in force in the map of answers.
const keyAnswers = "answers"

// refusals returns the answers as the programs read them, whose texts begin at an offset.
func refusals(t *policy.AnswerTables, texts uint32) []narthexRefusal {
	if t == nil {
		return nil
	}
	out := make([]narthexRefusal, len(t.Answers))
	for i, a := range t.Answers {
		out[i] = narthexRefusal{
			Text: texts + uint32(a.At), Length: uint16(a.Length), Head: uint16(a.Head),
			Page: texts + uint32(a.PageAt), PageLength: uint16(a.PageLength), Any: uint16(flag(a.PageForAny)),
		}
	}
	return out
}

// placeAnswers writes the texts of the policy to be where none is in force, or leaves them where they are. What is
// being sent of a policy before goes on as it was.
func (c *change) placeAnswers() error {
	t := c.state.Tables.Answers
	if t == nil {
		return nil
	}
	at, _ := strconv.Atoi(recorded(c.objects.Journal, keyAnswers))
	if c.in.texts != nil && bytes.Equal(c.in.texts, t.Texts) {
		c.texts = uint32(at)
		return nil
	}
	c.texts = uint32(policy.MaxAnswerBytes - at)
	first := int(c.texts) / answerStride
	for i := 0; i*answerStride < len(t.Texts); i++ {
		var part narthexAnswerPart
		copy(part.Text[:], t.Texts[i*answerStride:])
		if err := c.objects.Answers.Put(uint32(first+i), &part); err != nil {
			return err
		}
	}
	return nil
}
