package negotiate

import (
	"strconv"
	"strings"
)

// maxClauses bounds the alternatives that are looked at in one request.
const maxClauses = 64

// Offers says what the caller can answer with, besides whole objects in JSON.
type Offers struct {
	// Stream is set when the answer is a stream of watch events, which has no YAML form.
	Stream bool
	// NoTable is set when the answer has no form of a table.
	NoTable bool
}

// Accept chooses the best alternative that the headers allow. No header at all means JSON. It returns false
// when nothing that is asked for can be produced.
func Accept(headers []string, offers Offers) (Output, bool) {
	if len(headers) == 0 || len(headers) == 1 && (headers[0] == "" || headers[0] == TypeJSON || headers[0] == "*/*") {
		return Output{}, true
	}
	var best Output
	bestRank, found, seen := -1, false, 0
	for _, header := range headers {
		for header != "" {
			var clause string
			clause, header, _ = strings.Cut(header, ",")
			if seen++; seen > maxClauses {
				return best, found
			}
			if strings.TrimSpace(clause) == "" {
				continue
			}
			out, rank, ok := parse(clause, offers)
			if ok && rank > bestRank {
				best, bestRank, found = out, rank, true
			}
		}
	}
	return best, found
}

// parse reads one alternative. Its rank orders alternatives: weight first, then how specific the media
// range is; among equals the first named wins.
func parse(clause string, offers Offers) (Output, int, bool) {
	media, params, _ := strings.Cut(clause, ";")
	var out Output
	specific := 2
	switch strings.ToLower(strings.TrimSpace(media)) {
	case TypeJSON:
	case TypeYAML:
		if offers.Stream {
			return Output{}, 0, false
		}
		out.Encoding = YAML
	case TypeProtobuf:
		out.Encoding = Protobuf
	case "application/*":
		specific = 1
	case "*/*":
		specific = 0
	default:
		return Output{}, 0, false
	}
	p := parseParams(params)
	if p.weight <= 0 {
		return Output{}, 0, false
	}
	form, ok := p.form()
	if !ok || form == Table && (offers.NoTable || out.Encoding == Protobuf) {
		return Output{}, 0, false
	}
	out.Form = form
	return out, p.weight*4 + specific, true
}

type params struct {
	// weight is q in thousandths; negative when it cannot be read.
	weight             int
	as, group, version string
}

func parseParams(s string) params {
	p := params{weight: 1000}
	for s != "" {
		var pair string
		pair, s, _ = strings.Cut(s, ";")
		key, value, _ := strings.Cut(pair, "=")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "q":
			p.weight = -1
			if q, err := strconv.ParseFloat(value, 64); err == nil && q >= 0 && q <= 1 {
				p.weight = int(q * 1000)
			}
		case "as":
			p.as = value
		case "g":
			p.group = value
		case "v":
			p.version = value
		}
	}
	return p
}

// form returns the transformation that is asked for, and whether there is such a one.
func (p params) form() (Form, bool) {
	if p.as == "" {
		return Whole, true
	}
	if p.group != "meta.k8s.io" || p.version != "v1" {
		return Whole, false
	}
	switch p.as {
	case "Table":
		return Table, true
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return Metadata, true
	default:
		return Whole, false
	}
}
