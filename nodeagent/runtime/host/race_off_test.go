//go:build !race

package host

// raceDetector tells that memory is not worth measuring.
const raceDetector = false
