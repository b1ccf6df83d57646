package podstate

import "fmt"

// pulled reports whether a container waits because its image was asked for in vain.
func pulled(reason string) bool {
	switch reason {
	case "ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed", "ImagePullBackOff":
		return true
	default:
		return false
	}
}

// pulling reports whether a container waits for its image. Who looked for the image has told the user what is wrong.
func pulling(reason string) bool {
	switch reason {
	case "InvalidImageName", "ImageInspectError", "ErrImageNeverPull":
		return true
	default:
		return pulled(reason)
	}
}

// backOffPull says, after a pull that has failed again, that the next one has to wait.
func (m *StateMachine) backOffPull(i int) {
	c := &m.containers[i]
	says := fmt.Sprintf("Back-off pulling image %q", m.spec(i).GetImage())
	c.waiting, c.message = "ImagePullBackOff", says+": "+c.waiting+": "+c.message
	m.do(Note{Reason: "BackOff", Message: says, Container: c.Name})
	m.do(Note{Warning: true, Reason: "Failed", Message: "Error: ImagePullBackOff", Container: c.Name})
}
