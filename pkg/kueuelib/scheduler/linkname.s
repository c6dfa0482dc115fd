// Makes the compiler take functions without a body.
