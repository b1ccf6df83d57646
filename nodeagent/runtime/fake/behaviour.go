package fake

import (
	"strconv"
	"strings"
	"time"
)

// Prefix begins the annotations that choose a container's behaviour.
const Prefix = "fake.monoplane.dev/"

// behaviour reads the annotations of one container's pod. Few pods have any.
type behaviour struct {
	annotations map[string]string
	container   string
	// command is what is executed in it, its words joined by "-"; empty for the container itself.
	command string
}

func (c *container) behaviour() behaviour {
	for key := range c.sandbox.annotations {
		if strings.HasPrefix(key, Prefix) {
			return behaviour{annotations: c.sandbox.annotations, container: c.packed.get().GetMetadata().GetName()}
		}
	}
	return behaviour{}
}

func (b behaviour) text(key string) string {
	if b.command != "" {
		if v, ok := b.annotations[Prefix+key+"."+b.command]; ok {
			return v
		}
	}
	if v, ok := b.annotations[Prefix+key+"."+b.container]; ok {
		return v
	}
	return b.annotations[Prefix+key]
}

// duration returns ok false when the annotation is missing or is not a positive duration.
func (b behaviour) duration(key string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(b.text(key))
	return d, err == nil && d >= 0
}

func (b behaviour) code(key string, missing int32) int32 {
	n, err := strconv.ParseInt(b.text(key), 10, 32)
	if err != nil {
		return missing
	}
	return int32(n)
}

func (b behaviour) flag(key string) bool {
	on, err := strconv.ParseBool(b.text(key))
	return err == nil && on
}
