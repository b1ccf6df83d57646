package connect

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// broken is a runtime with a fault.
type broken struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
}

func (broken) StopContainer(
	context.Context, *runtimeapi.StopContainerRequest,
) (*runtimeapi.StopContainerResponse, error) {
	panic("out of order")
}

func (broken) GetContainerEvents(
	*runtimeapi.GetEventsRequest, runtimeapi.RuntimeService_GetContainerEventsServer,
) error {
	panic("out of order, too")
}

// A runtime that panics fails the call, leaves its stack in the log, and serves on.
func TestRuntimePanics(t *testing.T) {
	var log bytes.Buffer
	conn, stop := serve(broken{}, slog.New(slog.NewTextHandler(&log, nil)))
	c := runtimeapi.NewRuntimeServiceClient(conn)
	for range 2 {
		if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{}); status.Code(err) != codes.Internal {
			t.Errorf("unary: %v", err)
		}
		stream, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Internal {
			t.Errorf("stream: %v", err)
		}
	}
	stop()
	for _, want := range []string{
		`level=ERROR`, `method=/runtime.v1.RuntimeService/StopContainer`, `panic="out of order"`,
		`panic="out of order, too"`, "broken.StopContainer",
		"panic_test.go:",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &log)
		}
	}
}
