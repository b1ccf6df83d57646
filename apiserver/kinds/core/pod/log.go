package pod

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/api/httpbody"
	"google.golang.org/grpc"

	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	nodev1rpc "monoplane.dev/api/node/v1/rpc"
)

// log serves Pods.Log (CTR-8).
func (s *service) log(req *corev1rpc.LogPodRequest, stream grpc.ServerStreamingServer[httpbody.HttpBody]) error {
	ctx := stream.Context()
	opts, causes := logOptions(req)
	if len(causes) > 0 {
		return apierrors.NewInvalid(&object.Kind{Version: "v1", Kind: "PodLogOptions"}, req.GetName(), causes)
	}
	o, err := s.Backend.Get(ctx, &metav1.GetRequest{Namespace: req.GetNamespace(), Name: req.GetName()})
	if err != nil {
		return err
	}
	p := o.(*corev1.Pod)
	if opts.Container, err = container(p, opts.GetContainer()); err != nil {
		return err
	}
	node := p.GetSpec().GetNodeName()
	if node == "" {
		return nil // Nothing has run. Who asks for the logs of many pods gets those of the others.
	}
	if s.logs == nil {
		return apierrors.New(apierrors.ServiceUnavailable, "this server has no connection to the agents of nodes")
	}
	call := &nodev1rpc.LogCall{
		Namespace: req.GetNamespace(), Pod: req.GetName(), Uid: p.GetMetadata().GetUid(), Options: opts,
	}
	return s.logs.Logs(ctx, node, call, func(data []byte) error {
		return stream.Send(&httpbody.HttpBody{ContentType: "text/plain", Data: data})
	})
}

// logOptions reads and checks the options of a request.
func logOptions(req *corev1rpc.LogPodRequest) (*corev1.PodLogOptions, []apierrors.Cause) {
	opts := &corev1.PodLogOptions{
		Container: req.GetContainer(), Follow: req.GetFollow(), Previous: req.GetPrevious(),
		SinceSeconds: req.SinceSeconds, Timestamps: req.GetTimestamps(), TailLines: req.TailLines,
		LimitBytes: req.LimitBytes, Stream: req.Stream,
	}
	var causes []apierrors.Cause
	bad := func(kind, field, message string) {
		causes = append(causes, apierrors.Cause{Type: kind, Field: field, Message: message})
	}
	least := func(field string, value *int64, min int64, message string) {
		if value != nil && *value < min {
			bad("FieldValueInvalid", field, "Invalid value: "+strconv.FormatInt(*value, 10)+": "+message)
		}
	}
	if req.GetSinceTime() != "" {
		t, err := time.Parse(time.RFC3339, req.GetSinceTime())
		if err != nil {
			bad("FieldValueInvalid", "sinceTime", `Invalid value: "`+req.GetSinceTime()+`": must be an RFC 3339 time`)
		}
		opts.SinceTime = value.Time(t)
		if req.SinceSeconds != nil {
			// "[]" is how Kubernetes writes that it is no one field.
			bad("FieldValueForbidden", "[]", "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified")
		}
	}
	least("sinceSeconds", req.SinceSeconds, 1, "must be greater than 0")
	least("tailLines", req.TailLines, 0, "must be greater than or equal to 0")
	least("limitBytes", req.LimitBytes, 1, "must be greater than 0")
	streams := []string{"All", "Stdout", "Stderr"}
	if req.Stream != nil && !slices.Contains(streams, *req.Stream) {
		bad("FieldValueNotSupported", "stream",
			`Unsupported value: "`+*req.Stream+`": supported values: "`+strings.Join(streams, `", "`)+`"`)
	}
	return opts, causes
}

// container returns the container whose log is wanted: the one named, or the pod's only one.
func container(p *corev1.Pod, name string) (string, error) {
	spec := p.GetSpec()
	var main, all []string
	for _, c := range spec.GetContainers() {
		main = append(main, c.GetName())
	}
	all = append(all, main...)
	var inits []string
	for _, c := range spec.GetInitContainers() {
		inits = append(inits, c.GetName())
	}
	all = append(all, inits...)
	for _, c := range spec.GetEphemeralContainers() {
		all = append(all, c.GetEphemeralContainerCommon().GetName())
	}
	if name != "" {
		if !slices.Contains(all, name) {
			return "", apierrors.New(apierrors.BadRequest,
				"container %s is not valid for pod %s", name, p.GetMetadata().GetName())
		}
		return name, nil
	}
	if len(main) == 1 {
		return main[0], nil
	}
	text := "a container name must be specified for pod " + p.GetMetadata().GetName() +
		", choose one of: [" + strings.Join(main, " ") + "]"
	if len(inits) > 0 {
		text += " or one of the init containers: [" + strings.Join(inits, " ") + "]"
	}
	return "", apierrors.New(apierrors.BadRequest, "%s", text)
}
