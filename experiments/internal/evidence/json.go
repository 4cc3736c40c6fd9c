// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"encoding/json"
	"math"
)

// samples are written as a list in which null is no number and a text is infinite, for which JSON
// has no numbers: a peer that served nobody makes a ratio infinite.
type samples []float64

// MarshalJSON writes them.
func (s samples) MarshalJSON() ([]byte, error) {
	list := make([]any, len(s))
	for i, v := range s {
		switch {
		case math.IsNaN(v): // null
		case math.IsInf(v, 1):
			list[i] = "+Inf"
		case math.IsInf(v, -1):
			list[i] = "-Inf"
		default:
			list[i] = v
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads them. What else a file may have there is no number.
func (s *samples) UnmarshalJSON(text []byte) error {
	var list []any
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*s = nil
	for _, v := range list {
		number, ok := v.(float64)
		switch {
		case v == "+Inf":
			number = math.Inf(1)
		case v == "-Inf":
			number = math.Inf(-1)
		case !ok:
			number = math.NaN()
		}
		*s = append(*s, number)
	}
	return nil
}

// The types below are those without methods, so that their samples may be written otherwise.
type (
	plainPoint Point
	plainCell  Cell
	plainClaim Claim
	plainRatio Ratio

	wirePoint struct {
		plainPoint
		Samples samples `json:"samples"`
	}
	wireCell struct {
		plainCell
		Samples samples `json:"samples,omitempty"`
	}
	wireClaim struct {
		plainClaim
		Samples samples `json:"samples"`
	}
	wireRatio struct {
		plainRatio
		Samples samples `json:"samples"`
	}
)

// MarshalJSON also writes samples that are no numbers.
func (p Point) MarshalJSON() ([]byte, error) {
	return json.Marshal(wirePoint{plainPoint(p), p.Samples})
}

// MarshalJSON also writes samples that are no numbers.
func (c Cell) MarshalJSON() ([]byte, error) { return json.Marshal(wireCell{plainCell(c), c.Samples}) }

// MarshalJSON also writes samples that are no numbers.
func (c Claim) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireClaim{plainClaim(c), c.Samples})
}

// MarshalJSON also writes samples that are no numbers.
func (q Ratio) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireRatio{plainRatio(q), q.Samples})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Point) UnmarshalJSON(text []byte) error {
	var w wirePoint
	err := json.Unmarshal(text, &w)
	*p = Point(w.plainPoint)
	p.Samples = w.Samples
	return err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Cell) UnmarshalJSON(text []byte) error {
	var w wireCell
	err := json.Unmarshal(text, &w)
	*c = Cell(w.plainCell)
	c.Samples = w.Samples
	return err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Claim) UnmarshalJSON(text []byte) error {
	var w wireClaim
	err := json.Unmarshal(text, &w)
	*c = Claim(w.plainClaim)
	c.Samples = w.Samples
	return err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (q *Ratio) UnmarshalJSON(text []byte) error {
	var w wireRatio
	err := json.Unmarshal(text, &w)
	*q = Ratio(w.plainRatio)
	q.Samples = w.Samples
	return err
}
