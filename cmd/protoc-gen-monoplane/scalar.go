package main

import (
	"fmt"

	optionsv1 "monoplane.dev/api/options/v1"
)

// scalar writes the codec of a message whose JSON form is not an object.
func (c *codec) scalar(s optionsv1.Scalar) error {
	var name, get, set string
	switch s {
	case optionsv1.Scalar_TIME:
		name, get, set = "Time", "x.GetSeconds(), x.GetNanos()", "&x.Seconds, &x.Nanos"
	case optionsv1.Scalar_MICRO_TIME:
		name, get, set = "MicroTime", "x.GetSeconds(), x.GetNanos()", "&x.Seconds, &x.Nanos"
	case optionsv1.Scalar_DURATION:
		name, get, set = "Duration", "x.GetDuration()", "&x.Duration"
	case optionsv1.Scalar_QUANTITY:
		name, get, set = "Quantity", "x.GetString_()", "&x.String_"
	case optionsv1.Scalar_INT_OR_STRING:
		name, get, set = "IntOrString", "x.GetType(), x.GetIntVal(), x.GetStrVal()", "&x.Type, &x.IntVal, &x.StrVal"
	case optionsv1.Scalar_FIELDS_V1, optionsv1.Scalar_RAW_EXTENSION:
		name, get, set = "Raw", "x.GetRaw()", "&x.Raw"
	case optionsv1.Scalar_STRINGS:
		return c.strings()
	default:
		return fmt.Errorf("%s: unknown scalar %v", c.m.Desc.FullName(), s)
	}
	c.forms("return "+c.runtime("Append"+name)+"(b, "+get+")", "d."+name+"("+set+")")
	return nil
}

// strings writes the codec of a message that is a list of strings.
func (c *codec) strings() error {
	if len(c.m.Fields) != 1 {
		return fmt.Errorf("%s: a list of strings has one field", c.m.Desc.FullName())
	}
	name := c.m.Fields[0].GoName
	c.forms("return "+c.runtime("AppendStringsOrNull")+"(b, x.Get"+name+"())", c.runtime("Strings")+"(d, &x."+name+")")
	return nil
}

// forms writes the methods of a message whose JSON form takes one call to write and one to read.
func (c *codec) forms(write, read string) {
	g := c.g
	g.P("// AppendJSON appends the JSON form of x to b.")
	g.P("func (x *", c.m.GoIdent, ") AppendJSON(b []byte) []byte {")
	g.P(write)
	g.P("}")
	g.P()
	g.P("// DecodeJSON reads the JSON form of x from d.")
	g.P("func (x *", c.m.GoIdent, ") DecodeJSON(d *", c.runtime("Decoder"), ") {")
	g.P(read)
	g.P("}")
	g.P()
}
