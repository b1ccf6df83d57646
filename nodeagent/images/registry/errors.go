package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// The kinds of errors, found with errors.Is.
var (
	// ErrNotFound: the registry does not have it, or does not tell us that it has.
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized: the registry wants other credentials, or refuses these.
	ErrUnauthorized = errors.New("authorization failed")
	// ErrTooManyRequests: the registry wants us to come later.
	ErrTooManyRequests = errors.New("too many requests")
	// ErrUnavailable: no answer, or one that says that the registry does not work.
	ErrUnavailable = errors.New("the registry is unavailable")
	// ErrRefused: what the registry wants us to do is not safe.
	ErrRefused = errors.New("refused")
	// ErrWrong: what the registry sent is not what it should be.
	ErrWrong = errors.New("the registry sent something wrong")
)

// laterError is ErrTooManyRequests with what the registry said about when.
type laterError struct {
	error
	after time.Duration
}

func (e *laterError) Unwrap() error { return e.error }

// again reports whether trying again may help, and after which time at least.
func again(err error) (bool, time.Duration) {
	var later *laterError
	if errors.As(err, &later) {
		return true, later.after
	}
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTooManyRequests), 0
}

// judge says what kind of error one of the transport is.
func judge(ctx context.Context, err error) error {
	var answer *transport.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrRefused), errors.Is(err, ErrUnavailable), errors.Is(err, ErrWrong):
		return err
	case errors.As(err, &answer):
		return fmt.Errorf("%w: %w", kindOf(answer.StatusCode), err)
	case isNetwork(err):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default: // such as a challenge that nobody understands
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
}

func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network)
}

func kindOf(status int) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ErrUnauthorized
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusTooManyRequests:
		return ErrTooManyRequests
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return ErrUnavailable
	default:
		return ErrWrong
	}
}

// judgeAnswer returns an error for an answer that is not one of the expected ones. It reads the body.
func judgeAnswer(resp *http.Response, expected ...int) error {
	err := transport.CheckError(resp, expected...)
	if err == nil {
		return nil
	}
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	kind := kindOf(answer.StatusCode)
	err = fmt.Errorf("%w: %s", kind, clip(err.Error()))
	if !errors.Is(kind, ErrTooManyRequests) {
		return err
	}
	// A date, or nothing, is as good as 0.
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return &laterError{err, time.Duration(max(0, min(seconds, 1<<20))) * time.Second}
}

// clip shortens what a registry said to what an event can hold.
func clip(s string) string {
	const most = 500
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
