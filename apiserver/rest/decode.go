package rest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/rest/negotiate"
	"monoplane.dev/apiserver/yaml"
	"monoplane.dev/codec"
	"monoplane.dev/codec/json"

	metav1 "monoplane.dev/api/meta/v1"
)

// NewDecoder returns what reads a body into what the gateway wants filled: a *[]byte for a patch, else a message. An
// error of io.EOF says that there is no body where there need not be one.
func (ex *exchange) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		if patch, ok := v.(*[]byte); ok {
			data, err := ex.readBody(r, make([]byte, 0, max(512, ex.r.ContentLength+1)))
			*patch = data
			return err
		}
		buffer := ex.h.buffers.Get().(*[]byte)
		defer ex.h.release(buffer)
		data, err := ex.readBody(r, (*buffer)[:0])
		*buffer = data
		if err != nil {
			return err
		}
		return ex.Unmarshal(data, v)
	})
}

var errNoCodec = errors.New("rest: a request body of a type without a codec")

// Unmarshal decodes a body into a message.
func (ex *exchange) Unmarshal(data []byte, v any) error {
	o, ok := v.(codec.Typed)
	if !ok {
		return apierrors.NewInternal(fmt.Errorf("%w: %T", errNoCodec, v))
	}
	_, isOptions := v.(*metav1.DeleteOptions)
	if isOptions && len(data) == 0 {
		return io.EOF
	}
	strict, err := ex.decodeObject(data, o)
	if err != nil {
		return decodeError(o, err)
	}
	if isOptions {
		// Never refused, as in Kubernetes, where deletions know no fieldValidation; but who misspells a precondition
		// should hear of it.
		ex.warnStrict(strict)
		return nil
	}
	return ex.reportStrict(o, strict)
}

func (ex *exchange) decodeObject(data []byte, o codec.Typed) (strict []string, err error) {
	switch ex.encoding {
	case negotiate.Protobuf:
		return nil, codec.DecodeProtobuf(data, o)
	case negotiate.YAML:
		text, duplicates, err := yaml.ToJSON(data)
		if err != nil {
			return nil, err
		}
		strict, err = codec.DecodeObject(text, o)
		return slices.Concat(duplicates, strict), err
	default:
		return codec.DecodeObject(data, o)
	}
}

// reportStrict does with unknown and duplicate fields what the client asked for (spec: OBJ-3).
func (ex *exchange) reportStrict(o codec.Typed, strict []string) error {
	if len(strict) == 0 {
		return nil
	}
	switch ex.validation {
	case "Ignore":
		return nil
	case "Strict":
		version, kind := versionAndKind(o)
		return apierrors.New(apierrors.BadRequest, "%s in version %q cannot be handled as a %s: strict decoding error: %s",
			kind, version, kind, strings.Join(strict, ", "))
	default:
		ex.warnStrict(strict)
		return nil
	}
}

func (ex *exchange) warnStrict(strict []string) {
	for _, text := range strict {
		ex.warnings.Add(text)
	}
}

// decodeError words what is wrong with a body as Kubernetes does.
func decodeError(o codec.Typed, err error) error {
	version, kind := versionAndKind(o)
	var wrongKind *codec.KindError
	var inJSON *json.Error
	var decided *apierrors.Error
	switch {
	case errors.As(err, &decided):
		return err
	case errors.As(err, &wrongKind) && wrongKind.Kind == wrongKind.WantKind:
		return apierrors.New(apierrors.BadRequest,
			"the API version in the data (%s) does not match the expected API version (%s)",
			wrongKind.APIVersion, wrongKind.WantAPIVersion)
	case errors.As(err, &wrongKind):
		_, foundVersion, ok := strings.Cut(wrongKind.APIVersion, "/")
		if !ok {
			foundVersion = wrongKind.APIVersion
		}
		return apierrors.New(apierrors.BadRequest, "%s in version %q cannot be handled as a %s: expected kind %s",
			wrongKind.Kind, foundVersion, kind, wrongKind.WantKind)
	case errors.As(err, &inJSON) && len(inJSON.Types) == 0:
		return apierrors.New(apierrors.BadRequest,
			"the object provided is unrecognized (must be of type %s): couldn't get version/kind; json parse error: %v", kind,
			err)
	case errors.As(err, &inJSON):
		return apierrors.New(apierrors.BadRequest, "%s in version %q cannot be handled as a %s: %v", kind, version, kind,
			err)
	default:
		return apierrors.New(apierrors.BadRequest, "the object provided is unrecognized (must be of type %s): %v", kind, err)
	}
}

// versionAndKind returns the version, without its group, and the kind of o.
func versionAndKind(o codec.Typed) (version, kind string) {
	version, kind = o.TypeMeta()
	if _, v, ok := strings.Cut(version, "/"); ok {
		version = v
	}
	return version, kind
}
