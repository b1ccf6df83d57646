package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A tree is what JSON decodes to: map[string]any, []any, string, json.Number, bool or nil.

// parse reads one JSON value, with the paths of duplicate fields.
func parse(data []byte) (tree any, duplicates []string, err error) {
	p := parser{dec: json.NewDecoder(bytes.NewReader(data))}
	p.dec.UseNumber()
	tree, err = p.value("", 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, nil, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("unexpected data after the JSON value")
	}
	return tree, p.duplicates, nil
}

type parser struct {
	dec        *json.Decoder
	duplicates []string
}

// maxDuplicates bounds what is remembered of a hostile document.
const maxDuplicates = 64

func (p *parser) value(path string, depth int) (any, error) {
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth >= MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", MaxDepth)
	}
	var out any
	if open == '{' {
		out, err = p.object(path, depth+1)
	} else {
		out, err = p.array(path, depth+1)
	}
	if err != nil {
		return nil, err
	}
	_, err = p.dec.Token() // the closing delimiter
	return out, err
}

func (p *parser) object(path string, depth int) (map[string]any, error) {
	m := make(map[string]any)
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("a field name must be a string, not %v", token)
		}
		at := name
		if path != "" {
			at = path + "." + name
		}
		if _, dup := m[name]; dup && len(p.duplicates) < maxDuplicates {
			p.duplicates = append(p.duplicates, at)
		}
		if m[name], err = p.value(at, depth); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (p *parser) array(path string, depth int) ([]any, error) {
	list := []any{}
	for p.dec.More() {
		v, err := p.value(path+"["+strconv.Itoa(len(list))+"]", depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func encode(tree any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// clone returns a copy that shares no map and no list with tree.
func clone(tree any) any {
	switch t := tree.(type) {
	case map[string]any:
		m := make(map[string]any, len(t))
		for k, v := range t {
			m[k] = clone(v)
		}
		return m
	case []any:
		list := make([]any, len(t))
		for i, v := range t {
			list[i] = clone(v)
		}
		return list
	default:
		return t
	}
}
