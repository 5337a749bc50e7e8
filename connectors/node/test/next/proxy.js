import {headgate} from 'headgate';
import {nextMiddleware} from 'headgate/next';

const gate = headgate({decide: process.env.DECIDE});

export default nextMiddleware(gate);
