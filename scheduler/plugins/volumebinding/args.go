package volumebinding

import (
	"errors"
	"fmt"
)

// Args are Kubernetes' VolumeBindingArgs.
type Args struct {
	// BindTimeoutSeconds bounds the wait of a pod for its volumes, once its node was picked.
	BindTimeoutSeconds int64 `json:"bindTimeoutSeconds"`
	// Shape belongs to a feature of Kubernetes that is off by default: it must not be set.
	Shape []struct {
		Utilization int32 `json:"utilization"`
		Score       int32 `json:"score"`
	} `json:"shape"`
}

// DefaultArgs are Kubernetes' defaults.
func DefaultArgs() Args { return Args{BindTimeoutSeconds: 600} }

// Validate lists everything that is wrong, each with the name of its field.
func (a Args) Validate() error {
	var errs []error
	if a.BindTimeoutSeconds < 0 {
		errs = append(errs, fmt.Errorf("args.bindTimeoutSeconds: %d is negative", a.BindTimeoutSeconds))
	}
	if a.Shape != nil {
		errs = append(errs, errors.New("args.shape: nodes are not scored by their storage"))
	}
	return errors.Join(errs...)
}
