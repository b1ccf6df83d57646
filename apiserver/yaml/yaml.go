package rest

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
	errYAMLTooLarge = errors.New("the YAML body is too large once its aliases are expanded")
	errYAMLNumber   = errors.New("the YAML body has a number that JSON cannot express")
	errYAMLKey      = errors.New("the YAML body has a key that is neither a string, a number nor a boolean")
)

const (
	// maxYAML is the largest YAML body in bytes. It is below MaxBody because YAML takes a hundred times as long
	// to parse as JSON, and above what the store takes as one object in practice.
	maxYAML = 1 << 20
	// maxDuplicates bounds what is reported of one document, as the JSON decoder does.
	maxDuplicates = 100
)

// yamlToJSON translates a YAML document, in the dialect of Kubernetes (YAML 1.1), and reports duplicate keys.
// The result is bounded like a body, since aliases let a small document stand for a huge one.
func yamlToJSON(data []byte) (text []byte, duplicates []string, err error) {
	if len(data) > maxYAML {
		return nil, nil, apierrors.New(apierrors.RequestEntityTooLarge, "Request entity too large: limit for YAML is %d",
			maxYAML)
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
	text, err = appendYAML(make([]byte, 0, len(data)+len(data)/2), v)
	return text, duplicates, err
}

func appendYAML(b []byte, v any) ([]byte, error) {
	if len(b) > MaxBody {
		return b, errYAMLTooLarge
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case string:
		if len(v) > MaxBody {
			return b, errYAMLTooLarge
		}
		return json.AppendString(b, v), nil
	case map[any]any:
		return appendYAMLMap(b, v)
	case []any:
		var err error
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendYAML(b, e); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	case []byte:
		return json.AppendString(b, base64.StdEncoding.EncodeToString(v)), nil
	default:
		text, err := yamlScalar(v)
		return append(b, text...), err
	}
}

func appendYAMLMap(b []byte, m map[any]any) ([]byte, error) {
	values := make(map[string]any, len(m))
	keys := make([]string, 0, len(m))
	for k, v := range m {
		key, ok := k.(string)
		if !ok {
			var err error
			if key, err = yamlScalar(k); err != nil {
				return b, errYAMLKey
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
		if b, err = appendYAML(b, values[key]); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// yamlScalar returns a number or a boolean as JSON writes it.
func yamlScalar(v any) (string, error) {
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
			return "", errYAMLNumber
		}
		return strings.TrimSuffix(strconv.FormatFloat(v, 'g', -1, 64), ".0"), nil
	default:
		return "", errYAMLKey
	}
}
