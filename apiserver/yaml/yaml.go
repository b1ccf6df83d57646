// Package yaml translates documents of clients from YAML to JSON, which the codec reads. The dialect is that of
// Kubernetes, YAML 1.1; the result is bounded, however small the document that stands for it.
package yaml

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v2"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/json"
)

var (
	errTooLarge = errors.New("the YAML body is too large once its aliases are expanded")
	errNumber   = errors.New("the YAML body has a number that JSON cannot express")
	errKey      = errors.New("the YAML body has a key that is neither a string, a number nor a boolean")
)

const (
	// maxJSON is the most bytes that a document may stand for.
	maxJSON = 3 << 20
	// MaxBytes is the largest YAML document in bytes. It is below maxJSON because YAML takes a hundred times as long
	// to parse as JSON, and above what the store takes as one object in practice.
	MaxBytes = 1 << 20
	// maxDuplicates bounds what is reported of one document, as the JSON decoder does.
	maxDuplicates = 100
)

// ToJSON translates a YAML document, in the dialect of Kubernetes (YAML 1.1), and reports duplicate keys.
// The result is bounded like a body, since aliases let a small document stand for a huge one.
func ToJSON(data []byte) (text []byte, duplicates []string, err error) {
	if len(data) > MaxBytes {
		return nil, nil, apierrors.New(apierrors.RequestEntityTooLarge, "Request entity too large: limit for YAML is %d",
			MaxBytes)
	}
	var v any
	if err := yaml.UnmarshalStrict(data, &v); err != nil {
		var list *yaml.TypeError
		if !errors.As(err, &list) {
			return nil, nil, fmt.Errorf("error converting YAML to JSON: %w", err)
		}
		duplicates = list.Errors[:min(len(list.Errors), maxDuplicates)]
		v = nil
		if err := yaml.Unmarshal(data, &v); err != nil {
			return nil, nil, fmt.Errorf("error converting YAML to JSON: %w", err)
		}
	}
	text, err = appendValue(make([]byte, 0, len(data)+len(data)/2), v)
	return text, duplicates, err
}

func appendValue(b []byte, v any) ([]byte, error) {
	if len(b) > maxJSON {
		return b, errTooLarge
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		if len(v) > maxJSON {
			return b, errTooLarge
		}
		return json.AppendString(b, v), nil
	case map[any]any:
		return appendMap(b, v)
	case []any:
		var err error
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, e); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	case []byte:
		return json.AppendString(b, base64.StdEncoding.EncodeToString(v)), nil
	default:
		text, err := scalar(v)
		return append(b, text...), err
	}
}

func appendMap(b []byte, m map[any]any) ([]byte, error) {
	values := make(map[string]any, len(m))
	keys := make([]string, 0, len(m))
	for k, v := range m {
		key, ok := k.(string)
		if !ok {
			var err error
			if key, err = scalar(k); err != nil {
				return b, errKey
			}
		}
		if _, ok := values[key]; !ok {
			keys = append(keys, key)
		}
		values[key] = v
	}
	slices.Sort(keys)
	var err error
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = json.AppendString(b, key)
		b = append(b, ':')
		if b, err = appendValue(b, values[key]); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// scalar returns a number or a boolean as JSON writes it.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case uint64:
		return strconv.FormatUint(v, 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", errNumber
		}
		return strings.TrimSuffix(strconv.FormatFloat(v, 'g', -1, 64), ".0"), nil
	default:
		return "", errKey
	}
}
